package redisstore

import (
	"context"
	"crypto/sha1" // the name by which Redis knows a script
	"encoding/hex"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/lua"
)

// script is a script's text and its name, boxed once for the client's arguments.
type script struct{ text, hash any }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// program is what a policy needs, worked out when it is first seen.
type program struct {
	take, refund *script
	unit         []any // the arguments of one unit
}

// programs are those of the policies seen so far.
type programs struct {
	m sync.Map // core.Policy -> *program
	n atomic.Int64
}

// maxPrograms bounds what is kept for a service that makes policies as it runs:
// then it starts over.
const maxPrograms = 4096

func (ps *programs) of(p core.Policy) (*program, error) {
	if v, ok := ps.m.Load(p); ok {
		return v.(*program), nil //nolint:forcetypeassert // nothing else is stored
	}
	take, _, err := lua.Take(p.Shape())
	if err != nil {
		return nil, err
	}
	refund, _, err := lua.Refund(p.Shape())
	if err != nil {
		return nil, err
	}
	v := &program{newScript(take), newScript(refund), arguments(p.Params(1))}
	if ps.n.Add(1) > maxPrograms {
		ps.n.Store(1)
		ps.m.Clear()
	}
	ps.m.Store(p, v)
	return v, nil
}

func arguments(params []int64) []any {
	args := make([]any, len(params))
	for i, n := range params {
		args[i] = strconv.FormatInt(n, 10)
	}
	return args
}

// command is a call of a script that no client ever repeats by itself: whether a
// script ran is unknown once its reply is lost, and running it again would
// charge twice. Clients still follow a cluster's redirections, after which
// nothing has run.
type command struct{ *redis.IntSliceCmd }

// NoRetry overrides that of go-redis's commands.
func (command) NoRetry() bool { return true }

func (s *Store) send(ctx context.Context, args []any) ([]int64, error) {
	cmd := command{redis.NewIntSliceCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3)
	cmd.SetStepCount(1) // or a cluster's client would ask the servers what EVALSHA is
	if err := s.rdb.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}
