package redisstore

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// answers is a hook that answers each script of a pipeline.
type answers struct{}

func (answers) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (answers) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.(command).SetVal([]int64{1})
		}
		return nil
	}
}

// Functions that wait for late answers are called when all callers that are still there have theirs. If one panics, the
// next are called all the same, and nobody else is concerned: neither a caller that was answered, nor the one that has
// its passenger after it.
func TestPanicOfLateAnswer(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{DenyCache: -1}, answers{})
	program, err := s.programs.of(s.names, core.MustParse("p: 10/1m"))
	require.NoError(t, err)
	f := &flight{lane: s.only.lanes[deciding], sent: time.Now(), entries: 5, landed: true}
	for i := range f.entries {
		e := entry{script: program.take, args: program.unit, program: program}
		p := passengers.New().(*passenger)
		take := core.Take{Policy: core.MustParse("p: 10/1m"), Key: strconv.Itoa(i), Cost: 1}
		f.passengers = append(f.passengers, p.enter(&e, &take, f.sent))
	}
	f.group(1)
	first, last := f.passengers[0], f.passengers[4]
	called := 0
	for _, p := range f.passengers[1:4] {
		p.lateErr = new(core.LateError)
		require.True(t, p.outcome.end(hasQuit))
		p.lateErr.Then(func(core.Result, error) {
			if called++; called == 1 {
				assert.True(t, last.outcome.answered(), "it waits for others")
				require.True(t, first.outcome.answered())
				first.enter(&entry{}, nil, time.Now()) // of another caller
			}
			panic("late")
		})
	}
	assert.Nil(t, f.relay())
	assert.Equal(t, 3, called)
	assert.False(t, first.outcome.answered(), "nobody has answered the other caller")
	assert.NoError(t, first.err)
}
