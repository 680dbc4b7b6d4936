package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
)

// entry is one thing to ask the server for: a script, or without one to forget the key.
type entry struct {
	key    string
	script *script
	args   []any
	// harmless is true of a script that does nothing when it runs a second time.
	harmless bool
	// weight is for how long everybody else on the server waits; see askAll.
	weight int64

	reply []int64
	err   error

	sent     bool // there is nothing to send any more
	known    bool // the server was told the script by another entry
	repeated bool // it was sent once more
	lost     bool // the reply to a harmless script was lost, so that it may have run
}

// newEntry asks for a script, and has room for the script's arguments.
func newEntry(script *script, key string, arguments int) entry {
	args := make([]any, 0, 4+arguments)
	return entry{key: key, script: script, args: append(args, "evalsha", script.hash, "1", key)}
}

// sendText makes an entry bring the script's text, for a server that does not know its hash.
func (e *entry) sendText() { e.args[0], e.args[1] = "eval", e.script.text }

// flight is one or more entries that travel together: with one deadline, one question to
// a breaker and one word to it about how that went. It is the context of its commands.
type flight struct {
	deadline
	entries []entry
	single  [1]entry // the entries of a flight of one, which is one allocation
	// background is true of what no request waits for. It travels in a pipeline, because
	// clients have other connections for those.
	background bool
}

// ask flies with one entry that a request waits for, and returns what came of it.
func (s *Store) ask(ctx context.Context, e entry) ([]int64, error) {
	f := &flight{}
	f.single[0] = e
	f.entries = f.single[:]
	s.fly(ctx, f)
	return f.single[0].reply, f.single[0].err
}

// A flight in the background has at most maxFlight entries, and of the weight maxWeight or
// one entry: others on the server wait up to 2 ms for as many refunds. With a server 10 ms
// away, 20 000 a second come back.
const (
	maxFlight = 256
	maxWeight = 4 * maxPlaces
)

// backgroundDeadline is how long a flight in the background may take. Nobody waits for
// it, so it has the patience that a server in trouble needs; a second is short enough to
// try again several times within a lease.
const backgroundDeadline = time.Second

// askAll flies with entries that no request waits for, in as many flights as it takes.
func (s *Store) askAll(ctx context.Context, entries []entry) {
	for len(entries) > 0 {
		n, weight := 1, entries[0].weight
		for n < len(entries) && n < maxFlight && weight+entries[n].weight <= maxWeight {
			weight += entries[n].weight
			n++
		}
		s.fly(ctx, &flight{entries: entries[:n], background: true})
		entries = entries[n:]
	}
}

// fly gives each entry its reply or its error.
func (s *Store) fly(ctx context.Context, f *flight) {
	if at, ok := ctx.Deadline(); ok && f.background && !time.Now().Before(at) {
		f.fail(errNoTime) // the flights before it took all of the time
		return
	}
	if err := s.ready(ctx); err != nil {
		f.fail(err)
		return
	}
	b, limit := s.decisions, s.deadline
	if f.background {
		b, limit = s.background, max(limit, backgroundDeadline)
	}
	probe, ok := b.allow()
	if !ok {
		f.fail(errOpen)
		return
	}
	said := probe == nil
	defer func() {
		if !said { // a panic in a hook is a failure
			probe(errPanicked)
		}
	}()
	f.begin(ctx, limit, f.background)
	err := s.depart(ctx, f)
	said = true
	b.report(probe, err)
	if err != nil {
		s.repair(ctx, err)
	}
}

var (
	errZero     = errors.New("redisstore: a zero Store; build one with New")
	errOpen     = &core.StoreError{Class: core.ClassBreaker, Err: errors.New("redisstore: the server failed just before; it is asked once a second until it answers")}
	errNoTime   = &core.StoreError{Class: core.ClassTimeout, Err: context.DeadlineExceeded}
	errPanicked = &core.StoreError{Class: core.ClassLost, Executed: true, Err: errors.New("redisstore: a hook panicked")}
)

// ready says why nothing can be asked at all.
func (s *Store) ready(ctx context.Context) error {
	if s.decisions == nil {
		return errZero
	}
	return ctx.Err()
}

func (f *flight) fail(err error) {
	for i := range f.entries {
		f.entries[i].err = err
	}
}

// depart sends a flight and returns what it says about the server: nil if any entry was
// answered.
func (s *Store) depart(ctx context.Context, f *flight) (verdict error) {
	if !f.background {
		if err := s.pool.enter(ctx, &f.deadline); err != nil {
			f.stop(true)
			if errors.Is(err, errLeft) {
				f.fail(ctx.Err())
			} else {
				f.fail(err)
			}
			return err
		}
		defer s.pool.leave()
	}
	s.send(f)
	answered := true
	for i := range f.entries {
		e := &f.entries[i]
		if e.err == nil {
			continue
		}
		answered = false
		failed := classify(e.err)
		failed.Executed = failed.Executed || e.lost
		if e.err = failed; verdict == nil || !silent(failed.Class) {
			verdict = failed
		}
	}
	f.stop(answered)
	switch alive := slices.ContainsFunc(f.entries, func(e entry) bool { return e.err == nil }); {
	case alive:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		f.fail(ctx.Err())
		return errLeft
	case f.hurried:
		return hurried{verdict}
	}
	return verdict
}

// send sends a flight, to each server its own part, so that one that hangs holds up nobody
// else's. A goroutine does that if there are several, or if the client does not keep to a
// deadline by itself; what it has not answered in time is left to it.
func (s *Store) send(f *flight) {
	if s.bounded && (s.oneServer || len(f.entries) == 1) {
		s.exchange(f, f.entries, f.background)
		return
	}
	parts := s.parts(f)
	answers := make(chan part, len(parts))
	for _, p := range parts {
		go func() {
			defer func() {
				// A panic in a hook is the caller's to see; here it would end the program.
				p.panicked = recover()
				answers <- p
			}()
			s.exchange(f, p.entries, f.background)
		}()
	}
	f.fail(context.DeadlineExceeded) // unless there is an answer
	for range parts {
		select {
		case p := <-answers:
			if p.panicked != nil {
				panic(p.panicked)
			}
			for k, i := range p.of {
				f.entries[i] = p.entries[k]
			}
		case <-f.Done():
			return
		}
	}
}

// part is what one server has to do of a flight.
type part struct {
	of       []int // the indices of the entries
	entries  []entry
	panicked any
}

// parts divides a flight by servers, or into single entries if it takes too long to ask the
// client which these are.
func (s *Store) parts(f *flight) (all []part) {
	server := func(i int) any { return i }
	switch c := s.rdb.(type) {
	case *redis.Client:
		server = func(int) any { return c }
	case *redis.ClusterClient:
		if s.bounded {
			server = func(i int) any { m, _ := c.MasterForKey(f, f.entries[i].key); return m }
		}
	case *redis.Ring:
		server = func(i int) any { m, _ := c.GetShardClientForKey(f.entries[i].key); return m }
	}
	known := make(map[any]int)
	for i, e := range f.entries {
		at := server(i)
		n, ok := known[at]
		if !ok {
			n = len(all)
			known[at], all = n, append(all, part{})
		}
		all[n].of, all[n].entries = append(all[n].of, i), append(all[n].entries, e)
	}
	return all
}

// exchange sends entries, and what surely has not run, or may run twice, once more. What
// the server then does not know by its hash, because it has just restarted, goes a third
// time, as a text.
func (s *Store) exchange(ctx context.Context, entries []entry, pipelined bool) {
	for again := true; again; {
		s.transmit(ctx, entries, pipelined)
		again = false
		var texts []*script // that travel whole; then the server knows them for the rest
		for i := range entries {
			e := &entries[i]
			switch {
			case e.err == nil || e.script == nil:
				continue
			case strings.HasPrefix(serverSays(e.err), "NOSCRIPT") && e.args[0] != "eval" && !e.known:
				e.repeated = true
				if e.known = slices.Contains(texts, e.script); !e.known {
					e.sendText()
					texts = append(texts, e.script)
				}
			case e.repeated:
				continue
			case replayable(e.err):
				e.repeated = true
			case e.harmless && classify(e.err).Class == core.ClassLost:
				e.repeated, e.lost = true, true
			default:
				continue
			}
			e.sent, again = false, true
		}
	}
}

// transmit sends what was not sent, once.
func (s *Store) transmit(ctx context.Context, entries []entry, pipelined bool) {
	if !pipelined {
		e := &entries[0]
		cmd := e.command(ctx)
		err := s.rdb.Process(ctx, cmd)
		e.settle(cmd, err)
		return
	}
	pipe := s.rdb.Pipeline()
	commands, bytes := make([]redis.Cmder, len(entries)), 0
	for i := range entries {
		if e := &entries[i]; !e.sent {
			commands[i] = e.command(ctx)
			_ = pipe.Process(ctx, commands[i]) // it only waits in the pipeline
			for _, arg := range e.args {
				text, _ := arg.(string)
				bytes += len(text) + maxFraming
			}
		}
	}
	_, failed := pipe.Exec(ctx)
	for i, cmd := range commands {
		if cmd == nil {
			continue
		}
		err := cmd.Err()
		if answer, ok := cmd.(command); ok && err == nil && answer.Val() == nil {
			err = failed // a command that was not even sent
		}
		if bytes > maxUntorn {
			err = torn(err)
		}
		entries[i].settle(cmd, err)
	}
}

// maxUntorn is how much goes into a socket at once or not at all, and maxFraming is what
// the protocol adds to an argument.
const (
	maxUntorn  = 16 << 10
	maxFraming = 16
)

// settle takes what became of an entry's command.
func (e *entry) settle(cmd redis.Cmder, err error) {
	e.sent, e.reply, e.err = true, nil, err
	if answer, ok := cmd.(command); ok && err == nil {
		e.reply = answer.Val()
	}
}

// command is a call of a script that no client ever repeats by itself: whether a
// script ran is unknown once its reply is lost, and running it again would
// charge twice. Clients still follow a cluster's redirections, after which
// nothing has run.
type command struct{ *redis.IntSliceCmd }

// NoRetry overrides that of go-redis's commands.
func (command) NoRetry() bool { return true }

func (e *entry) command(ctx context.Context) redis.Cmder {
	if e.script == nil {
		cmd := redis.NewIntCmd(ctx, "del", e.key)
		cmd.SetFirstKeyPos(1)
		cmd.SetStepCount(1)
		return cmd
	}
	cmd := command{redis.NewIntSliceCmd(ctx, e.args...)}
	cmd.SetFirstKeyPos(3)
	cmd.SetStepCount(1) // or a cluster's client would ask the servers what EVALSHA is
	return cmd
}
