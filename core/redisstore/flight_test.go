package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/redistest"
)

// asker is a caller on a flight, and what it got.
type asker struct {
	take core.Take
	ctx  context.Context //nolint:containedctx // that of a request
	back chan struct{}   // closed when it has got it
	res  core.Result
	err  error
}

// ground lets callers wait for one flight, in their order, until they are let go. That ends when the flight has.
func ground(t *testing.T, s *redisstore.Store, askers []*asker) (waiting func() int, letGo func()) {
	t.Helper()
	waiting, letGo = s.Ground()
	for i, r := range askers {
		if r.ctx == nil {
			r.ctx = t.Context()
		}
		r.back = make(chan struct{})
		go func() {
			defer close(r.back)
			r.res, r.err = s.Take(r.ctx, r.take)
		}()
		came := func() int { // with those who have left again, if the machine is slower than their time
			n := waiting()
			for _, r := range askers[:i+1] {
				select {
				case <-r.back:
					n++
				default:
				}
			}
			return n
		}
		for n, start := 0, time.Now(); came() < i+1; n++ {
			require.Less(t, time.Since(start), patient)
			if runtime.Gosched(); n > 10 { // nobody looks at sockets while somebody is always about
				<-time.After(50 * time.Microsecond)
			}
		}
	}
	return waiting, letGo
}

// fly lets callers wait for one flight, in their order, and calls meanwhile before it leaves.
func fly(t *testing.T, s *redisstore.Store, askers []*asker, meanwhile func()) {
	t.Helper()
	_, letGo := ground(t, s, askers)
	meanwhile()
	letGo()
	for _, r := range askers {
		<-r.back
	}
}

func nothing() {}

// Every answer is the one that the plain store gives if it is asked by one after the other, in the
// order in which they came, and so is what is stored: with many keys to a script and with one.
func TestFlightsAgreeWithGo(t *testing.T) { //nolint:paralleltest // it computes: what waits for a server beside it would wait for the processor
	operations := *operations / 4 // several callers make each
	compare := func(name string, maxKeys int, algorithms ...core.Algorithm) {
		t.Run(fmt.Sprint(name, maxKeys), func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(unhurried(redisstore.ClientOptions(redistest.Single(t).Addr())).Simple())
			defer func() { assert.NoError(t, rdb.Close()) }()
			s := &inFlights{texts: &texts{
				// Two flights have no order, and what is refused from memory is not asked for.
				Store: newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient, MaxKeys: maxKeys, Flights: 1}),
				t:     t, rdb: rdb, reference: storetest.Reference(),
			}}
			if maxKeys > 1 {
				require.True(t, s.Together())
			}
			storetest.Compare(t, storetest.Reference(), s, *seed, operations, algorithms...)
			assert.Greater(t, s.askers, operations/50, "of each algorithm some; how many is up to the seed")
		})
	}
	for _, a := range storetest.Algorithms() {
		compare(a.String(), 64, a)
	}
	compare("mixes", 64)
	compare("mixes", 1)
}

// inFlights is texts with the takes of one TakeInOrder on as few flights as keep their order.
type inFlights struct {
	*texts
	askers int
}

func (s *inFlights) TakeInOrder(ctx context.Context, takes []core.Take) (results []core.Result, err error) {
	for len(takes) > 0 && err == nil {
		n := inOneOrder(takes)
		var answers []core.Result
		answers, err = s.takeAtOnce(ctx, takes[:n])
		results, takes = append(results, answers...), takes[n:]
	}
	return results, err
}

// inOneOrder returns how many of the takes are decided in the order in which they come, if they wait at the same time.
// Policies take turns, and so do two of the same text: what is asked of one key by both has no order.
func inOneOrder(takes []core.Take) int {
	by := map[[2]string]core.Policy{}
	for i, t := range takes {
		id := [2]string{t.Policy.Name(), t.Key}
		if before, ok := by[id]; ok && before != t.Policy {
			return i
		}
		by[id] = t.Policy
	}
	return len(takes)
}

func (s *inFlights) takeAtOnce(ctx context.Context, takes []core.Take) (results []core.Result, err error) {
	askers := make([]*asker, len(takes))
	for i, t := range takes {
		askers[i] = &asker{take: t}
		s.load(ctx, t.Policy.Spec().Kinds())
	}
	fly(s.t, s.Store, askers, nothing)
	for _, r := range askers {
		err = errors.Join(err, r.err)
		results = append(results, r.res)
		if _, wrong := s.reference.Take(ctx, r.take); wrong == nil {
			s.askers++
			defer s.compare(ctx, r.take) // what is stored is the same in the end
		}
	}
	return results, err
}

// newFlights is a store on one server that knows its scripts and may let many keys share one.
func newFlights(t *testing.T, o redisstore.Options) (*redistest.Server, *redisstore.Store) {
	t.Helper()
	server := redistest.Single(t)
	rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(server.Addr()))))
	s := newStore(t, rdb, o)
	require.Eventually(t, s.Together, patient, time.Millisecond)
	return server, s
}

// askers are callers of one policy, one for each key.
func askers(policy string, n int) (all []*asker) {
	p := core.MustParse(policy)
	for i := range n {
		all = append(all, &asker{take: core.Take{Policy: p, Key: fmt.Sprint(i), Cost: 1}})
	}
	return all
}

// A crowd needs one command, or few if it asks different things.
func TestFlightsAreCheap(t *testing.T) {
	t.Parallel()
	server, s := newFlights(t, redisstore.Options{DenyCache: -1, Deadline: patient})
	many := askers("many: 1000000/1h fixed-window", 50)
	hot := askers("hot: 100/1h fixed-window", 1)
	for range 200 {
		hot = append(hot, &asker{take: hot[0].take})
	}
	for i := range 40 {
		hot = append(hot, &asker{take: core.Take{Policy: many[0].take.Policy, Key: fmt.Sprint(i), Cost: 1}})
	}
	fly(t, s, askers("warm: 10/1h fixed-window", 3), nothing)
	server.ResetStats(t)
	fly(t, s, many, nothing)
	for _, r := range many {
		require.NoError(t, r.err)
		assert.EqualValues(t, 1, r.res.Taken)
	}
	assert.EqualValues(t, 1, server.CommandStats(t)["evalsha"])
	server.ResetStats(t)
	fly(t, s, hot, nothing)
	admitted := 0
	for i, r := range hot {
		require.NoError(t, r.err)
		if r.take.Policy.Name() == "hot" && r.res.Allowed() {
			assert.EqualValues(t, 99-i, r.res.Remaining, "in the order in which they came")
			admitted++
		}
	}
	assert.Equal(t, 100, admitted)
	assert.EqualValues(t, 2, server.CommandStats(t)["evalsha"])
}

// A caller that leaves before it is in a flight is not charged; one that leaves afterwards is.
func TestPassengersLeave(t *testing.T) {
	t.Parallel()
	server, s := newFlights(t, redisstore.Options{DenyCache: -1, Deadline: patient})
	all := askers("leave: 10/1h fixed-window", 3)
	early, cancel := context.WithCancel(t.Context())
	late, cancelLate := context.WithCancel(t.Context())
	defer cancelLate()
	all[1].ctx, all[2].ctx = early, late
	waiting, letGo := ground(t, s, all)
	cancel()
	<-all[1].back
	assert.Equal(t, 2, waiting())
	server.Pause(t)
	landed := make(chan struct{})
	go func() {
		defer close(landed)
		letGo()
	}()
	require.Eventually(t, func() bool { return waiting() == 0 }, patient, time.Millisecond)
	cancelLate()
	<-all[2].back
	server.Resume(t)
	<-landed
	<-all[0].back
	require.NoError(t, all[0].err)
	require.ErrorIs(t, all[1].err, context.Canceled)
	require.ErrorIs(t, all[2].err, context.Canceled)
	p := all[0].take.Policy
	assert.EqualValues(t, 1, used(t, s, p, "0"))
	assert.Zero(t, used(t, s, p, "1"))
	assert.EqualValues(t, 1, used(t, s, p, "2"))

	// Those with little time get the fail word's answer in time; the others are not cut off with them.
	server.Pause(t)
	all = askers("hurry: 10/1h fixed-window", 20)
	hurried := little{t.Context(), 20 * time.Millisecond}
	var short, long sync.WaitGroup
	for _, r := range all[:19] {
		short.Go(func() { r.res, r.err = s.Take(hurried, r.take) })
	}
	last := all[19]
	long.Go(func() { last.res, last.err = s.Take(t.Context(), last.take) })
	short.Wait()
	for _, r := range all[:19] {
		var failed *core.StoreError
		require.ErrorAs(t, r.err, &failed)
		assert.Contains(t, []string{core.ClassTimeout, core.ClassBusy}, failed.Class, "the latter if it was too late to ask")
	}
	server.Resume(t)
	long.Wait()
	require.NoError(t, last.err)
	_, err := s.Take(t.Context(), all[0].take)
	require.NoError(t, err, "the breaker is closed")
}

// A server that stands still for a part of the deadline fails nobody: neither those whose flights are out, nor those who
// come meanwhile and find none.
func TestServerStandsStill(t *testing.T) {
	t.Parallel()
	const deadline = 5 * time.Second // so that a busy machine takes no large part of it
	server, s := newFlights(t, redisstore.Options{DenyCache: -1, Deadline: deadline})
	_, err := s.Take(t.Context(), askers("still: 10/1h", 1)[0].take)
	require.NoError(t, err)
	server.Pause(t)
	resumed := time.After(deadline * 3 / 5)
	var wg sync.WaitGroup
	all := askers("still: 10/1h", 1000)
	for i, r := range all {
		wg.Go(func() { r.res, r.err = s.Take(t.Context(), r.take) })
		if i%10 == 9 {
			select {
			case <-time.After(time.Millisecond):
			case <-resumed:
				resumed = nil
				server.Resume(t)
			}
		}
	}
	if resumed != nil {
		<-resumed
		server.Resume(t)
	}
	wg.Wait()
	for i, r := range all {
		require.NoError(t, r.err, "number %d", i)
	}
}

// A flight whose reply is lost fails its own passengers alone, and is not sent again; to the breaker
// it is one failure.
func TestFlightIsLost(t *testing.T) {
	t.Parallel()
	for how, class := range map[redistest.Loss]string{
		redistest.EOF: core.ClassLost, redistest.RST: core.ClassLost, redistest.Hang: core.ClassTimeout,
	} {
		for _, maxKeys := range []int{1, 64} {
			t.Run(fmt.Sprint(class, how, maxKeys), func(t *testing.T) {
				t.Parallel()
				server := redistest.Single(t)
				proxy := redistest.NewProxy(t, server.Addr())
				rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(proxy.Addr()))))
				o := redisstore.Options{DenyCache: -1, Deadline: patient, MaxKeys: maxKeys}
				warm := newStore(t, rdb, o)
				if maxKeys > 1 {
					require.Eventually(t, warm.Together, patient, time.Millisecond)
				}
				fly(t, warm, askers("warm: 10/1h fixed-window", 20), nothing)
				if how == redistest.Hang {
					o.Deadline = 5 * brief // all are aboard before it is over
				}
				s := newStore(t, rdb, o)
				if maxKeys > 1 {
					require.Eventually(t, s.Together, patient, time.Millisecond)
				}
				all := askers("lost: 10/1h fixed-window", 20)
				fly(t, s, all, func() { proxy.LoseNextReply("evalsha", how) })
				assert.Equal(t, 1, proxy.Lost())
				for _, r := range all {
					var failed *core.StoreError
					require.ErrorAs(t, r.err, &failed)
					assert.Equal(t, class, failed.Class, "%v", r.err)
					assert.True(t, failed.MaybeExecuted)
				}
				for _, r := range all {
					assert.EqualValues(t, 1, used(t, warm, r.take.Policy, r.take.Key), "executed exactly once")
				}
				require.Eventually(t, func() bool {
					_, err := s.Take(t.Context(), all[0].take)
					var failed *core.StoreError
					ok := errors.As(err, &failed)
					require.False(t, ok && failed.Class == core.ClassBreaker, "twenty callers are one failure")
					return err == nil
				}, patient, time.Millisecond)
			})
		}
	}
}

// A script that the server has forgotten travels once, and nobody is charged twice for it.
func TestFlightWithoutScript(t *testing.T) {
	t.Parallel()
	server, s := newFlights(t, redisstore.Options{DenyCache: -1, Deadline: patient})
	all := append(askers("one: 10/1h fixed-window", 20), askers("two: 10/1h", 20)...)
	fly(t, s, append(askers("one: 10/1h fixed-window", 2), askers("two: 10/1h", 2)...), nothing)
	fly(t, s, all, func() {
		require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
		server.ResetStats(t)
	})
	for i, r := range all {
		require.NoError(t, r.err)
		want := int64(9)
		if i%20 < 2 {
			want = 8
		}
		assert.Equal(t, want, r.res.Remaining)
	}
	assert.EqualValues(t, 2, server.CommandStats(t)["eval"])
	assert.EqualValues(t, 2, server.CommandStats(t)["evalsha"])
}

// A key that the server does not let the script write troubles no other; neither does one of a
// foreign type.
func TestPoisonKey(t *testing.T) {
	t.Parallel()
	server, _ := newFlights(t, redisstore.Options{DenyCache: -1, Deadline: patient})
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "narrow", "on", ">secret", "+@all",
		"~weir:1:poison:F:1*", "~weir:1:poison:f:1*", "~weir:1:weir-try:*", "%R~weir:1:poison:f:2*").Err())
	o := unhurried(redisstore.ClientOptions(server.Addr()))
	o.Username, o.Password = "narrow", "secret"
	rdb := closing(t, redis.NewUniversalClient(o))
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient})
	require.Eventually(t, s.Together, patient, time.Millisecond)
	p := core.MustParse("poison: 10/1h fixed-window")
	require.NoError(t, admin.LPush(t.Context(), "weir:1:poison:f:15", "a", "b").Err())
	var all []*asker
	for i := 10; i < 29; i++ {
		all = append(all, &asker{take: core.Take{Policy: p, Key: fmt.Sprint(i), Cost: 1}})
	}
	fly(t, s, all, nothing)
	for _, r := range all {
		if r.take.Key < "2" {
			require.NoError(t, r.err)
			assert.EqualValues(t, 9, r.res.Remaining, "charged once, list or not")
			continue
		}
		var failed *core.StoreError
		require.ErrorAs(t, r.err, &failed, r.take.Key)
		assert.Equal(t, core.ClassDenied, failed.Class)
		assert.False(t, failed.MaybeExecuted)
	}
}

// In a cluster each node has flights of its own: what has moved, or is about to, is asked for elsewhere, and
// nobody waits for a node that is dead but those whose keys it has.
func TestFlightsInCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	o := unhurried(redisstore.ClientOptions(cluster.Addrs()...))
	rdb := closing(t, redis.NewUniversalClient(o))
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient})
	crowd := func(policy string, n int) (all []*asker) {
		all = askers(policy, n)
		var wg sync.WaitGroup
		for _, r := range all {
			wg.Go(func() { r.res, r.err = s.Take(t.Context(), r.take) })
		}
		wg.Wait()
		return all
	}
	const policy = "cluster: 1000/1h fixed-window"
	rounds := int64(0)
	check := func() {
		t.Helper()
		rounds++
		for _, r := range crowd(policy, 60) {
			require.NoError(t, r.err)
			assert.Equal(t, 1000-rounds, r.res.Remaining)
		}
	}
	check()
	check()
	finish := cluster.Migrating(t, "weir:1:cluster:f:7")
	check() // those that are there are, and the others are asked for elsewhere
	other := cluster.Migrating(t, "weir:1:elsewhere:f:8")
	for _, r := range crowd("elsewhere: 1000/1h fixed-window", 60) {
		require.NoError(t, r.err)
		assert.EqualValues(t, 999, r.res.Remaining)
	}
	finish()
	check()
	check()
	other()
	for _, r := range crowd("elsewhere: 1000/1h fixed-window", 60) {
		require.NoError(t, r.err)
		assert.EqualValues(t, 998, r.res.Remaining)
	}
}

// A node that hangs holds up nobody whose key another one has.
func TestFlightsBesideDeadShard(t *testing.T) {
	t.Parallel()
	ring := []*redistest.Server{redistest.Single(t), redistest.Single(t)}
	rdb := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": ring[0].Addr(), "b": ring[1].Addr()}, HeartbeatFrequency: time.Hour,
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, ReadTimeout: patient, WriteTimeout: patient,
		DialTimeout: patient, PoolTimeout: patient,
	})
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient})
	all := askers("dead: 1000/1h fixed-window", 60)
	works := func() bool { _, err := s.Take(t.Context(), all[0].take); return err == nil } // beside the Ring's own checks
	require.Eventually(t, works, patient, time.Millisecond)
	var wg sync.WaitGroup
	dead := make(map[string]bool)
	for _, r := range all {
		wg.Go(func() {
			_, err := s.Take(t.Context(), r.take)
			assert.NoError(t, err)
		})
		client, err := rdb.GetShardClientForKey("weir:1:dead:f:" + r.take.Key)
		require.NoError(t, err)
		dead[r.take.Key] = client.Options().Addr == ring[0].Addr()
	}
	wg.Wait()
	ring[0].Pause(t)
	var served sync.WaitGroup // those of the living shard, who are not to wait for the others
	for _, r := range all {
		do := func() {
			r.res, r.err = s.Take(t.Context(), r.take)
		}
		if wg.Go(do); dead[r.take.Key] {
			continue
		}
		served.Go(func() {
			for range 20 {
				_, err := s.Take(t.Context(), r.take)
				assert.NoError(t, err)
			}
		})
	}
	served.Wait()
	ring[0].Resume(t)
	wg.Wait()
	for _, r := range all {
		assert.NoError(t, r.err, "it was late, but there was time")
	}
}
