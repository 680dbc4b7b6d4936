package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/lua"
)

var (
	acquireScript = newScript(lua.Acquire())
	renewScript   = newScript(lua.Renew())
	releaseScript = newScript(lua.Release())
)

// A script renews at most maxIDs permits of maxPlaces in all, or one, because everybody
// else on the server waits for it. A pipeline has at most maxFlight scripts, and permits of
// flightPlaces, or one script: it must be done within one deadline.
const (
	maxIDs       = 64
	maxPlaces    = core.MaxPermitWeight
	maxFlight    = 64
	flightPlaces = 4 * maxPlaces
)

// Acquire implements [core.PermitStore]. Unlike Take it may send its script a second
// time, within the deadline, if the connection broke before the reply came: acquiring
// twice is acquiring once, and so a reply that was lost leaves no permit that nobody
// knows of. If the second try fails too, or there was no time for one, the permit may be
// held until its lease ends: a core.StoreError whose Executed is true says so, and so does
// the context's error of a caller who left. Release it then.
func (s *Store) Acquire(ctx context.Context, p core.Permit) (core.Result, error) {
	if err := p.Validate(); err != nil {
		return core.Result{}, err
	}
	begun := time.Now()
	reply, err := s.acquire(ctx, &p)
	if failed := (*core.StoreError)(nil); errors.As(err, &failed) && failed.Class == core.ClassLost {
		if left := s.deadline - time.Since(begun); left > 0 && ctx.Err() == nil {
			// A call takes three quarters of its context's time.
			ctx, cancel := context.WithTimeout(ctx, left*4/3)
			defer cancel()
			if again, second := s.acquire(ctx, &p); second == nil {
				reply, err = again, nil
			}
		}
	}
	if failed := (*core.StoreError)(nil); errors.As(err, &failed) && strings.HasPrefix(serverSays(failed.Err), deniedInScript) {
		// The right that is missing may be that of a command after the first that wrote.
		return core.Result{}, &core.StoreError{Class: failed.Class, Executed: true, Err: failed.Err}
	}
	if err != nil {
		return core.Result{}, err
	}
	res, err := p.Explain(reply)
	if err != nil {
		return core.Result{}, &core.StoreError{Class: core.ClassReply, Executed: true, Err: err}
	}
	return res, nil
}

func (s *Store) acquire(ctx context.Context, p *core.Permit) ([]int64, error) {
	key := s.names.permits(p.Policy, p.Key)
	return s.guarded(ctx, call{key, acquireScript, permitArgs(acquireScript, key, []core.Permit{*p})})
}

// Release implements [core.PermitStore].
func (s *Store) Release(ctx context.Context, p core.Permit) error {
	if err := p.Validate(); err != nil {
		return err
	}
	key := s.names.permits(p.Policy, p.Key)
	_, err := s.guarded(ctx, call{key, releaseScript, []any{"evalsha", releaseScript.hash, "1", key, p.ID}})
	return err
}

// permitArgs are those of a script for permits that agree in all but id and weight.
func permitArgs(script *script, key string, permits []core.Permit) []any {
	args := make([]any, 0, 7+2*len(permits))
	args = append(args, "evalsha", script.hash, "1", key)
	args = append(args, arguments(permits[0].Params())...)
	for i := range permits {
		args = append(args, permits[i].ID, strconv.FormatInt(permits[i].Places(), 10))
	}
	return args
}

// Renew implements [core.PermitStore]. It needs one script for up to 64 permits of a key,
// and one pipeline for up to 64 scripts; each script fails for itself.
func (s *Store) Renew(ctx context.Context, permits []core.Permit) (lost []core.Permit, err error) {
	for i := range permits {
		if err := permits[i].Validate(); err != nil {
			return nil, err
		}
	}
	if s.breaker == nil {
		return nil, errZero
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var failed core.RenewError
	for rest := s.renewals(permits); len(rest) > 0; {
		n, places := 1, rest[0].places
		for n < len(rest) && n < maxFlight && places+rest[n].places <= flightPlaces {
			places += rest[n].places
			n++
		}
		flight := rest[:n]
		rest = rest[n:]
		s.fly(ctx, flight)
		for _, r := range flight {
			if r.err == nil && len(r.reply) != 1+len(r.permits) {
				r.err = &core.StoreError{Class: core.ClassReply, Executed: true, Err: errRenewal}
			}
			if r.err != nil {
				failed.Failed, failed.Err = append(failed.Failed, r.permits...), r.err
				continue
			}
			for i, held := range r.reply[1:] {
				if held == 0 {
					lost = append(lost, r.permits[i])
				}
			}
		}
	}
	if failed.Err != nil {
		return lost, &failed
	}
	return lost, nil
}

var errRenewal = errors.New("redisstore: the reply is none of the script that renews permits")

// renewal is one script's part of a Renew.
type renewal struct {
	permits []core.Permit
	places  int64 // of all of them
	script  *script
	args    []any
	reply   []int64
	err     error
}

// renewals divides permits by what one script can renew.
func (s *Store) renewals(permits []core.Permit) (all []*renewal) {
	type group struct {
		policy core.Policy
		key    string
		now    int64
	}
	open := map[group]*renewal{}
	for _, p := range permits {
		g := group{p.Policy, p.Key, p.Now}
		r := open[g]
		if r == nil || len(r.permits) == maxIDs || r.places+p.Places() > maxPlaces {
			r = &renewal{script: renewScript}
			open[g], all = r, append(all, r)
		}
		r.permits, r.places = append(r.permits, p), r.places+p.Places()
	}
	for _, r := range all {
		r.args = permitArgs(r.script, s.names.permits(r.permits[0].Policy, r.permits[0].Key), r.permits)
	}
	return all
}

// fly is what guarded is for one call. Each renewal has its own error.
func (s *Store) fly(ctx context.Context, flight []*renewal) {
	if s.breaker.State() == gobreaker.StateOpen {
		for _, r := range flight {
			r.err = &core.StoreError{Class: core.ClassBreaker, Err: errBroken}
		}
		return
	}
	d := newDeadline(ctx, s.deadline)
	s.boundFlight(d, flight)
	answered, alive := true, false
	var worst error // what the breaker is told, unless some server is alive
	for _, r := range flight {
		if r.err == nil {
			alive = true
			continue
		}
		answered = false
		r.err = classify(r.err)
		worst = r.err
	}
	d.stop(answered)
	if alive {
		worst = nil
	}
	if worst != nil {
		s.trouble.CompareAndSwap(nil, newTrouble())
	}
	switch {
	case worst == nil:
	case errors.Is(ctx.Err(), context.Canceled):
		worst = errLeft
	case d.hurried:
		worst = hurried{worst}
	}
	_, _ = s.breaker.Execute(func() ([]int64, error) { return nil, worst })
	s.recover(ctx, worst)
}

// boundFlight sends a flight with a context that it keeps to, whatever the client does.
// Where the client does not, each script is sent alone, so that a server that hangs
// holds up nobody else's.
func (s *Store) boundFlight(d *deadline, flight []*renewal) {
	if s.bounded {
		s.sendFlight(d, flight)
		return
	}
	type answer struct {
		i        int
		renewal  renewal
		panicked any
	}
	answers := make(chan answer, len(flight))
	for i, r := range flight {
		r.err = context.DeadlineExceeded // unless there is an answer
		own := *r
		go func() {
			a := answer{i: i}
			defer func() {
				// As in bound, a panic in a hook is the caller's to see.
				a.panicked, a.renewal = recover(), own
				answers <- a
			}()
			own.err = nil
			s.sendFlight(d, []*renewal{&own})
		}()
	}
	for range flight {
		select {
		case a := <-answers:
			if a.panicked != nil {
				panic(a.panicked)
			}
			*flight[a.i] = a.renewal
		case <-d.Done():
			return
		}
	}
}

// sendFlight sends what has not run once more, as ask does.
func (s *Store) sendFlight(ctx context.Context, flight []*renewal) {
	s.pipeline(ctx, flight)
	var again []*renewal
	for _, r := range flight {
		if replayable(r.err) {
			if strings.HasPrefix(serverSays(r.err), "NOSCRIPT") {
				r.args[0], r.args[1] = "eval", r.script.text
			}
			again = append(again, r)
		}
	}
	s.pipeline(ctx, again)
}

func (s *Store) pipeline(ctx context.Context, flight []*renewal) {
	if len(flight) == 0 {
		return
	}
	commands := make([]command, len(flight))
	pipe := s.rdb.Pipeline()
	for i, r := range flight {
		commands[i] = newCommand(ctx, r.args)
		_ = pipe.Process(ctx, commands[i]) // it only waits in the pipeline
	}
	_, failed := pipe.Exec(ctx)
	for i, r := range flight {
		r.reply, r.err = commands[i].Val(), commands[i].Err()
		if r.err == nil && r.reply == nil {
			r.err = failed // a command that was not even sent
		}
	}
}
