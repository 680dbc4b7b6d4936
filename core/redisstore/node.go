package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
)

// node is a server, and the lanes to it.
type node struct {
	store   *Store
	direct  *redis.Client // of this server
	lanes   [kinds]*lane
	warming atomic.Bool
	proxy   proxySearch
	counts  *counts
	asked   moment // when the latest flight left
}

// kind is a purpose of a lane: decisions, for which requests wait, and four that are done behind them. None of the
// latter can hold up a decision, or another.
type kind int

const (
	deciding kind = iota
	renewing
	releasing
	refunding
	scoring
	kinds
)

// nodes are those of a Cluster or Ring that were asked so far, up to maxNodes.
type nodes struct {
	byClient sync.Map // *redis.Client -> *node
	count    atomic.Int64
}

const maxNodes = 1024

// each calls f for all nodes, of which a Store that has only one has no others.
func (ns *nodes) each(only *node, f func(*node)) {
	if only != nil {
		f(only)
		return
	}
	ns.byClient.Range(func(_, n any) bool {
		f(n.(*node)) //nolint:forcetypeassert // nothing else is stored
		return true
	})
}

func newNode(s *Store, direct *redis.Client) *node {
	n := &node{store: s, direct: direct}
	n.counts = s.servers.of(n.addr())
	behind := newBreaker(n.turned(true))
	for k := range n.lanes {
		l := &lane{
			breaker: behind, node: n, deadline: s.backgroundDeadline, background: kind(k) != deciding,
			maxOut: 1, maxEntries: flightEntries, maxWeight: backgroundWeight, traffic: &n.counts.behind,
		}
		if kind(k) == deciding {
			l.breaker, l.deadline, l.maxOut, l.maxWeight = newBreaker(n.turned(false)), s.deadline, s.flights, decisionWeight
			l.traffic = &n.counts.decisions
		}
		all := connections(direct.Options())
		l.maxOut = min(l.maxOut, all)
		if kind(k) == deciding {
			l.maxAside = min(l.maxOut, all-l.maxOut)
		}
		l.handover = make(chan *flight, l.maxOut)
		n.lanes[k] = l
	}
	return n
}

// connections returns how many a client may have.
func connections(o *redis.Options) int {
	if o.MaxActiveConns > 0 {
		return min(o.PoolSize, o.MaxActiveConns)
	}
	return o.PoolSize
}

// node returns the node that has the key.
func (s *Store) node(ctx context.Context, key string) (*node, error) {
	if s.only != nil {
		return s.only, nil
	}
	var direct *redis.Client
	var err error
	switch c := s.rdb.(type) {
	case *redis.ClusterClient:
		direct, err = s.master(ctx, c, key)
	case *redis.Ring:
		direct, err = c.GetShardClientForKey(key)
	default:
		return nil, errZero
	}
	if err != nil {
		return nil, nowhere(ctx, err)
	}
	if n, ok := s.nodes.byClient.Load(direct); ok {
		return n.(*node), nil //nolint:forcetypeassert // nothing else is stored
	}
	n, known := s.nodes.byClient.LoadOrStore(direct, newNode(s, direct))
	if !known && s.nodes.count.Add(1) > maxNodes {
		s.nodes.count.Store(0)
		s.nodes.byClient.Clear() // those that are in use are made again
	}
	return n.(*node), nil //nolint:forcetypeassert // as above
}

// nowhere returns the failure of what cannot be asked of any server.
func nowhere(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	var failed *core.StoreError
	if errors.As(err, &failed) {
		return failed
	}
	failed = classify(err)
	if failed.MaybeExecuted = false; failed.Class == core.ClassReply {
		failed.Class = core.ClassDown
	}
	return failed
}

// master returns the client of the master that has the key. The Cluster's client asks the servers if it knows none yet.
func (s *Store) master(ctx context.Context, c *redis.ClusterClient, key string) (*redis.Client, error) {
	if s.mapped.Load() {
		return c.MasterForKey(ctx, key)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var probe func(error)
	if s.mapping.trouble.Load() != nil {
		var shut error
		if probe, shut = s.mapping.circuit.Allow(); shut != nil {
			return nil, errOpen
		}
	}
	verdict := error(errBusy) // which says nothing about the servers: nor does a caller that leaves, or a hook that panics
	defer func() {
		if probe != nil || verdict != nil {
			s.mapping.report(probe, verdict)
		}
	}()
	limited, cancel := context.WithTimeout(ctx, answerBy(s.deadline))
	defer cancel()
	direct, err := c.MasterForKey(limited, key)
	switch {
	case err == nil:
		s.mapped.Store(true)
		verdict = nil
	case ctx.Err() == nil:
		verdict = classify(err)
	}
	return direct, err
}

// addr returns the address of the server as the client has it.
func (n *node) addr() string { return n.direct.Options().Addr }

// named returns a failure with the name of its server.
func (n *node) named(err error) error {
	switch e := err.(type) { //nolint:errorlint // it is never wrapped
	case *core.StoreError:
		named := *e
		named.Server = n.addr()
		return &named
	case *core.LateError:
		e.Err = n.named(e.Err)
	}
	return err
}

// Failing reports whether the server at that address has left the latest decision that it was asked for without an
// answer. A Limiter calls it before it logs that the server is back; see [core.StoreError.Server].
func (s *Store) Failing(server string) (failing bool) {
	s.nodes.each(s.only, func(n *node) {
		failing = failing || n.addr() == server && n.lanes[deciding].trouble.Load() != nil
	})
	return failing
}

// pipeline sends several at once, to this server alone.
func (n *node) pipeline(ctx context.Context, cmds []redis.Cmder) error {
	pipe := n.direct.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // they only wait in the pipeline
	_, err := pipe.Exec(ctx)
	return err
}

// redirects reports whether an error says that another server has the key.
func (n *node) redirects(err error) bool {
	if _, ok := redis.IsMovedError(err); ok {
		return n.store.only == nil
	}
	_, ok := redis.IsAskError(err)
	return ok && n.store.only == nil
}

var errZero = errors.New("redisstore: a zero Store; build one with New")
