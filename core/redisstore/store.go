// Package redisstore keeps counts in Redis, so that one limit holds for a whole
// fleet: one key, one script, one round trip for each decision, by the server's
// clock. It works on a single server, Sentinel, Cluster and Ring.
//
// A script runs at most once for a decision, even if its reply is lost: then the
// store fails and the policy's fail word decides, but nothing is charged twice.
// A store that does not answer costs a request no more than the deadline, and
// after five failures in a row it is asked only once a second until it is back.
//
// It keeps permits as well: a Store is a [core.PermitStore], with a key and scripts of
// their own.
//
// Which rights its user needs: EVALSHA, EVAL, TIME, GET, SET and DEL on the keys of its
// prefix; for permits also ZADD, ZCARD, ZCOUNT, ZRANGE, ZRANGEBYSCORE, ZREM,
// ZREMRANGEBYSCORE, ZSCORE and PEXPIRE; in a Cluster CLUSTER SLOTS and, while slots move,
// ASKING; on a Ring PING, which helps everywhere; in another database than 0 SELECT. It
// never writes a key without a TTL. Keep it on a server that does not evict: an evicted
// key is a limit that starts over.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/weir-go/weir/core"
)

// DefaultDeadline is how long one decision may take unless told otherwise.
const DefaultDeadline = 50 * time.Millisecond

// Options say how a [Store] is built. The zero value is a good choice.
type Options struct {
	// Deadline bounds each call, whatever the caller's context says; 0 means
	// DefaultDeadline. A call that takes longer is a failure of the store. Beyond
	// 100 ms raise the timeouts of [ClientOptions] as well.
	Deadline time.Duration
	// Prefix begins every key; "" means "weir". It has 1 to 64 letters, digits,
	// "_", "." or "-". Policies that are named alike under one prefix share their
	// counts, also those of different services: give each service its own.
	Prefix string
	// HashKeys is a secret of at least 16 bytes with which every key is hashed
	// (HMAC-SHA-256), so that the server learns no address and no name. Without
	// it keys can be read with redis-cli, which helps on call. Changing it starts
	// all counts over.
	HashKeys []byte
}

// Store, built by [New], is a [core.Store] and a [core.PermitStore] on Redis. It needs no Close: what it does
// beside the decisions, after a timeout, ends within a second if the client keeps to a
// context's deadline, as that of [ClientOptions] does. The client stays the caller's to
// close.
type Store struct {
	rdb      redis.UniversalClient
	deadline time.Duration
	names    names
	breaker  *gobreaker.CircuitBreaker[[]int64]
	trouble  atomic.Pointer[trouble] // nil while no call has failed
	warming  atomic.Bool
	// bounded tells that the client itself keeps to a context's deadline.
	bounded  bool
	local    func() *core.Memory
	programs programs
	// skew is how far the server's clock was ahead of this machine's, in microseconds,
	// when that last mattered: for windows of the calendar.
	skew atomic.Int64
}

// New builds a store on a client of go-redis. It does no input or output, so that
// a server that is down does not keep a program from starting. [ClientOptions] are
// the options to give the client.
//
// A client without ContextTimeoutEnabled works too, at the price of a goroutine for
// each call, because it would otherwise wait for seconds. The error tells of an
// option that cannot work and of a client that is nil or an AutoPipeliner, which
// ignores its caller's context. A client of read-only replicas cannot be told
// apart: its every decision fails with the class "down".
func New(rdb redis.UniversalClient, o Options) (*Store, error) {
	var mistakes []error
	wrong := func(format string, args ...any) {
		mistakes = append(mistakes, fmt.Errorf("redisstore: "+format, args...))
	}
	bounded := false
	switch c := rdb.(type) {
	case *redis.Client:
		if c != nil {
			o := c.Options()
			bounded = keepsDeadline(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout)
		}
	case *redis.ClusterClient:
		if c != nil {
			o := c.Options()
			bounded = keepsDeadline(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout)
		}
	case *redis.Ring:
		if c != nil {
			o := c.Options()
			bounded = keepsDeadline(o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout)
		}
	}
	switch v := reflect.ValueOf(rdb); {
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		wrong("the client is nil; give one of redis.NewUniversalClient(redisstore.ClientOptions(addr))")
	case v.Type() == reflect.TypeFor[*redis.AutoPipeliner]():
		wrong("an AutoPipeliner ignores its caller's context; give the client it was made from")
	}
	if o.Deadline < 0 {
		wrong("Deadline is %v; give a positive time, or 0 for %v", o.Deadline, DefaultDeadline)
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Prefix == "" {
		o.Prefix = "weir"
	}
	if !validPrefix(o.Prefix) {
		wrong("Prefix is %.80q; give 1 to 64 letters, digits, \"_\", \".\" or \"-\"", o.Prefix)
	}
	if o.HashKeys != nil && len(o.HashKeys) < 16 {
		wrong("HashKeys has %d bytes; give a secret of at least 16, or nil for readable keys", len(o.HashKeys))
	}
	if mistakes != nil {
		return nil, errors.Join(mistakes...)
	}
	s := &Store{
		rdb:      rdb,
		deadline: o.Deadline,
		names:    newNames(o.Prefix, o.HashKeys),
		bounded:  bounded,
		local: sync.OnceValue(func() *core.Memory {
			m, err := core.NewMemory(core.MemoryOptions{})
			if err != nil {
				panic(err) // the defaults are valid
			}
			return m
		}),
	}
	s.breaker = s.newBreaker()
	return s, nil
}

// keepsDeadline tells whether a client ends a command with its context. One whose
// timeouts are negative leaves the socket's deadlines alone.
func keepsDeadline(enabled bool, read, write time.Duration) bool {
	return enabled && read >= 0 && write >= 0
}

// Fallback returns the in-process store that decides for this one while it fails,
// under "fail local". It implements [core.Fallback].
func (s *Store) Fallback() *core.Memory {
	if s.local == nil {
		return new(core.Memory) // of a zero Store, and as unusable
	}
	return s.local()
}

// Take implements [core.Store].
func (s *Store) Take(ctx context.Context, t core.Take) (core.Result, error) {
	if err := t.Validate(); err != nil {
		return core.Result{}, err
	}
	guess := s.guess(t)
	res, err := s.decide(ctx, t, guess)
	if errors.Is(err, core.ErrOtherWindow) { // nothing ran: ask again by the server's clock
		s.skew.Store(res.At - time.Now().UnixMicro())
		res, err = s.decide(ctx, t, res.At)
		if errors.Is(err, core.ErrOtherWindow) { // its clock leaps about
			return core.Result{}, &core.StoreError{Class: core.ClassOther, Err: err}
		}
	}
	return res, err
}

// guess is what the server's clock will probably say.
func (s *Store) guess(t core.Take) int64 {
	if t.Now != 0 {
		return t.Now
	}
	return time.Now().UnixMicro() + s.skew.Load()
}

func (s *Store) decide(ctx context.Context, t core.Take, guess int64) (core.Result, error) {
	p, err := s.programs.of(t.Policy)
	if err != nil {
		return core.Result{}, err
	}
	script, params := p.take, p.unit
	switch {
	case t.AtMost && t.Cost > 0:
		script, params = p.upTo, arguments(t.Policy.Params(t, guess))
	case t.Cost != 1 || t.Ahead > 0 || params == nil:
		params = arguments(t.Policy.Params(t, guess))
	}
	reply, err := s.run(ctx, script, s.names.key(t.Policy, t.Key), params, t.Now)
	if err != nil {
		return core.Result{}, err
	}
	res, err := t.Policy.Explain(t, reply)
	if err != nil && !errors.Is(err, core.ErrOtherWindow) {
		return core.Result{}, &core.StoreError{Class: core.ClassReply, Executed: true, Err: err}
	}
	return res, err
}

// Refund implements [core.Store].
func (s *Store) Refund(ctx context.Context, t core.Take, r core.Result, units int64) error {
	if err := core.ValidateRefund(&t, r, units); err != nil {
		return err
	}
	if units == 0 {
		return nil
	}
	p, err := s.programs.of(t.Policy)
	if err != nil {
		return err
	}
	key, at := s.names.key(t.Policy, t.Key), s.guess(t)
	reply, err := s.run(ctx, p.refund, key, arguments(t.Policy.RefundParams(r, units, at)), t.Now)
	if err == nil && len(reply) == 1 { // nothing ran: ask again by the server's clock
		reply, err = s.run(ctx, p.refund, key, arguments(t.Policy.RefundParams(r, units, reply[0])), t.Now)
	}
	if err == nil && len(reply) == 1 {
		return &core.StoreError{Class: core.ClassOther, Err: core.ErrOtherWindow}
	}
	return err
}

// Reset implements [core.Store].
func (s *Store) Reset(ctx context.Context, p core.Policy, key string) error {
	t := core.Take{Policy: p, Key: key}
	if err := t.Validate(); err != nil {
		return err
	}
	_, err := s.guarded(ctx, call{key: s.names.key(p, key)})
	return err
}

// run decides by a script. Without a forced time, zeros at the end are left out.
func (s *Store) run(ctx context.Context, script *script, key string, params []any, now int64) ([]int64, error) {
	if now == 0 {
		for len(params) > 0 && params[len(params)-1] == "0" {
			params = params[:len(params)-1]
		}
	}
	args := make([]any, 0, 5+len(params))
	args = append(args, "evalsha", script.hash, "1", key)
	args = append(args, params...)
	if now != 0 {
		args = append(args, strconv.FormatInt(now, 10))
	}
	return s.guarded(ctx, call{key, script, args})
}

// call is what to ask the server: a script, or without one to forget the key.
type call struct {
	key    string
	script *script
	args   []any
}

func (s *Store) ask(ctx context.Context, c call) ([]int64, error) {
	if c.script == nil {
		cmd := redis.NewIntCmd(ctx, "del", c.key)
		cmd.SetFirstKeyPos(1)
		cmd.SetStepCount(1)
		return nil, s.rdb.Process(ctx, cmd)
	}
	reply, err := s.send(ctx, c.args)
	if err == nil || !replayable(err) {
		return reply, err
	}
	if strings.HasPrefix(serverSays(err), "NOSCRIPT") {
		c.args[0], c.args[1] = "eval", c.script.text
	}
	return s.send(ctx, c.args)
}

// guarded makes a call if the breaker lets it through. While all goes well the
// breaker is not even asked: its lock would be everybody's.
func (s *Store) guarded(ctx context.Context, c call) (reply []int64, err error) {
	if s.breaker == nil {
		return nil, errZero
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.trouble.Load() == nil {
		if reply, err = s.attempt(ctx, c); err != nil {
			s.trouble.CompareAndSwap(nil, newTrouble())
			_, _ = s.breaker.Execute(func() ([]int64, error) { return nil, err })
		}
	} else {
		reply, err = s.breaker.Execute(func() ([]int64, error) { return s.attempt(ctx, c) })
		if err == nil && s.breaker.State() == gobreaker.StateClosed {
			s.trouble.Store(nil)
		}
	}
	switch {
	case err == nil:
		return reply, nil
	case errors.Is(err, errLeft):
		return nil, ctx.Err()
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return nil, &core.StoreError{Class: core.ClassBreaker, Err: errBroken}
	}
	s.recover(ctx, err)
	return nil, err
}

// attempt makes a call within the deadline and says what an error means.
func (s *Store) attempt(ctx context.Context, c call) ([]int64, error) {
	d := newDeadline(ctx, s.deadline)
	reply, err := s.bound(d, c)
	d.stop(err == nil)
	switch {
	case err == nil:
		return reply, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, errLeft
	case d.hurried:
		return nil, hurried{classify(err)}
	default:
		return nil, classify(err)
	}
}

var (
	errZero   = errors.New("redisstore: a zero Store; build one with New")
	errLeft   = errors.New("redisstore: the caller left")
	errBroken = errors.New("redisstore: the server failed just before; it is asked once a second until it answers")
)

// bound makes a call that ends with its context, whatever the client does.
func (s *Store) bound(d *deadline, c call) ([]int64, error) {
	if s.bounded {
		return s.ask(d, c)
	}
	type answer struct {
		reply    []int64
		err      error
		panicked any
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			// A panic in a hook is the caller's to see; here it would end the program.
			a.panicked = recover()
			done <- a
		}()
		a.reply, a.err = s.ask(d, c)
	}()
	select {
	case a := <-done:
		if a.panicked != nil {
			panic(a.panicked)
		}
		return a.reply, a.err
	case <-d.Done():
		return nil, d.Err()
	}
}

// recover does what a failed call cannot do for the next ones.
func (s *Store) recover(ctx context.Context, err error) {
	class := classOf(err)
	if class != core.ClassTimeout && class != core.ClassDown {
		return
	}
	// A cluster's client looks for the new master of a dead one only after
	// commands that it sends again, which ours must not be.
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
	// A new connection's handshake may take longer than a decision may. Then every
	// decision would begin one and none would finish it.
	if class == core.ClassTimeout && s.warming.CompareAndSwap(false, true) {
		go func() {
			defer s.warming.Store(false)
			defer func() { _ = recover() }() // of a hook: the next decision's caller will see it
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), warmUp)
			defer cancel()
			_ = s.rdb.Ping(ctx).Err() // it is the connection that counts
		}()
	}
}

// warmUp is how long a connection may take to be made beside the decisions.
const warmUp = time.Second
