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

// program is what a policy needs: the scripts of its kinds, and the arguments of one
// unit, unless they depend on the time.
type program struct {
	*scripts
	unit []any
}

type scripts struct{ take, upTo, refund *script }

// programs are those of the policies and kinds seen so far. There are few kinds;
// policies are kept up to maxPrograms, for a service that makes them as it runs.
type programs struct {
	byPolicy sync.Map // core.Policy -> *program
	policies atomic.Int64
	byKinds  sync.Map // string -> *scripts
}

const maxPrograms = 4096

func (ps *programs) of(p core.Policy) (*program, error) {
	if v, ok := ps.byPolicy.Load(p); ok {
		return v.(*program), nil //nolint:forcetypeassert // nothing else is stored
	}
	kinds := p.Kinds()
	shared, ok := ps.byKinds.Load(kinds)
	if !ok {
		var err error
		if shared, err = newScripts(kinds); err != nil {
			return nil, err
		}
		shared, _ = ps.byKinds.LoadOrStore(kinds, shared)
	}
	v := &program{scripts: shared.(*scripts)} //nolint:forcetypeassert // as above
	if !p.Calendar() {
		v.unit = arguments(p.Params(core.Take{Cost: 1}, 0))
	}
	if ps.policies.Add(1) > maxPrograms {
		ps.policies.Store(1)
		ps.byPolicy.Clear()
	}
	ps.byPolicy.Store(p, v)
	return v, nil
}

func newScripts(kinds string) (*scripts, error) {
	s := new(scripts)
	for _, op := range []struct {
		into    **script
		compose func(string) (string, error)
	}{{&s.take, lua.Take}, {&s.upTo, lua.UpTo}, {&s.refund, lua.Refund}} {
		text, err := op.compose(kinds)
		if err != nil {
			return nil, err
		}
		*op.into = newScript(text)
	}
	return s, nil
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
	cmd := newCommand(ctx, args)
	if err := s.rdb.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

func newCommand(ctx context.Context, args []any) command {
	cmd := command{redis.NewIntSliceCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3)
	cmd.SetStepCount(1) // or a cluster's client would ask the servers what EVALSHA is
	return cmd
}
