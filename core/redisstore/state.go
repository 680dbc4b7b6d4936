package redisstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/lua"
)

// State implements [core.StateStore]. It asks the server once for the counts and once for the permits, as far as the
// policy has both, and not in a flight with decisions. A server whose breaker is open is not asked.
func (s *Store) State(ctx context.Context, t core.Take) (core.State, error) {
	if err := t.ValidateState(); err != nil {
		return core.State{}, err
	}
	if err := ctx.Err(); err != nil {
		return core.State{}, err
	}
	spec, state := t.Policy.Spec(), core.State{}
	asked, cancel := context.WithTimeout(ctx, answerBy(s.deadline))
	defer cancel()
	if spec.Shape() != "" {
		p, err := s.programs.of(s.names, t.Policy)
		if err != nil {
			return core.State{}, err
		}
		if res, left, ok := s.denials.Peek(p.denials, &t, time.Since(started)); ok {
			res.Remembered = true
			state.Remembered, state.RememberedFor = &res, left
		}
		state.Name = p.name(t.Key)
		reply, err := s.kept(ctx, asked, state.Name, "0", &state)
		if err != nil {
			return state, err
		}
		if text, ok := reply[0].(string); ok {
			state.Text = []byte(text)
		}
	}
	if _, _, permits := t.Policy.Concurrent(); permits {
		state.PermitName = s.names.Of(s.names.Before(t.Policy, spec.PermitShape()), t.Key)
		reply, err := s.kept(ctx, asked, state.PermitName, "1", &state)
		if err != nil {
			return state, err
		}
		for _, end := range reply {
			at, err := strconv.ParseInt(textOf(end), 10, 64)
			if err != nil {
				return core.State{}, &core.StoreError{Class: core.ClassReply, Err: errState}
			}
			state.Leases = append(state.Leases, at)
		}
	}
	if t.Now != 0 {
		state.At = t.Now
	}
	return state, nil
}

// stateScript shows what is kept. It travels whole: hardly anybody asks for it.
var stateScript = lua.State()

var errState = errors.New("redisstore: the reply is not one of the script that shows a state")

// kept asks for what is kept under a name, and notes the server's time. It returns the rest of the reply.
func (s *Store) kept(ctx, asked context.Context, name, permits string, state *core.State) ([]any, error) {
	n, err := s.node(asked, name)
	if err != nil {
		return nil, err
	}
	if l := n.lanes[deciding]; l.trouble.Load() != nil && l.shut() {
		return nil, n.named(errOpen)
	}
	cmd := redis.NewSliceCmd(asked, "eval", stateScript, "1", name, permits)
	cmd.SetFirstKeyPos(3)
	if err := s.rdb.Process(asked, cmd); err != nil {
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		failed := classify(err)
		failed.MaybeExecuted = false // there was nothing to do
		return nil, n.named(failed)
	}
	reply := cmd.Val()
	if len(reply) >= 2 {
		seconds, err := strconv.ParseInt(textOf(reply[0]), 10, 64)
		micros, err2 := strconv.ParseInt(textOf(reply[1]), 10, 64)
		if err == nil && err2 == nil && (permits == "1" || len(reply) == 3) {
			state.At = seconds*1_000_000 + micros
			return reply[2:], nil
		}
	}
	return nil, n.named(&core.StoreError{Class: core.ClassReply, Err: errState})
}

// textOf returns a text in a reply, or "".
func textOf(v any) string {
	text, _ := v.(string)
	return text
}
