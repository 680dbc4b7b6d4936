package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/hosttest"
)

// answerTime is the longest time that a member may take for an answer: it waits for its callers and for a processor.
const answerTime = time.Minute

// remote is a member of the fleet as seen from here.
type remote struct {
	tb      testing.TB
	process *hosttest.Process
	lines   chan []byte
}

// enlist starts a member, which ends with tb.
func enlist(tb testing.TB, m membership) *remote {
	tb.Helper()
	text, err := json.Marshal(m)
	require.NoError(tb, err)
	p := hosttest.Start(tb, memberEnv, string(text))
	lines := make(chan []byte)
	ended := make(chan struct{})
	go func() {
		defer close(lines)
		for {
			line, err := p.Out.ReadBytes('\n')
			if err != nil {
				return
			}
			select {
			case lines <- line:
			case <-ended:
				return
			}
		}
	}()
	tb.Cleanup(func() {
		close(ended)
		_ = p.Kill() // it may be stopped
	})
	return &remote{tb, p, lines}
}

// tell sends a line. hear reads the answer.
func (r *remote) tell(line string) {
	r.tb.Helper()
	_, err := fmt.Fprintln(r.process.In, line)
	require.NoError(r.tb, err, "a member of the fleet has ended")
}

// hear reads the answer to a line.
func (r *remote) hear(answer any) {
	r.tb.Helper()
	select {
	case line, ok := <-r.lines:
		if !ok {
			r.tb.Fatalf("a member of the fleet has ended")
		}
		require.NoError(r.tb, json.Unmarshal(line, answer))
	case <-time.After(answerTime):
		r.tb.Fatalf("a member of the fleet has not answered for %v", answerTime)
	case <-r.tb.Context().Done():
		r.tb.Fatalf("stopped: %v", r.tb.Context().Err())
	}
}

// fleet is all members.
type fleet []*remote

// statuses sends a line to all members, and returns their statuses.
func (f fleet) statuses(line string) []status { return say[status](f, line) }

// stand lets all callers of all members stand still.
func (f fleet) stand() []report { return say[report](f, sayPause) }

// say sends a line to all members, and returns their answers.
func say[T any](f fleet, line string) []T {
	all := make([]T, len(f))
	for _, r := range f {
		r.tell(line)
	}
	for i, r := range f {
		r.hear(&all[i])
	}
	return all
}
