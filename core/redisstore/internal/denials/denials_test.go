package denials_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/denials"
	"github.com/weir-go/weir/internal/race"
)

// rig is a cache with a clock that stands still, and a policy that keys are refused by for an hour.
type rig struct {
	*testing.T
	*denials.Cache
	now    time.Duration
	policy core.Policy
	own    *denials.Policy
}

func newRig(t *testing.T, entries int, policy string) *rig {
	r := &rig{T: t, now: time.Hour, policy: core.MustParse(policy)}
	r.Cache = denials.New(entries, func() time.Duration { return r.now })
	r.own = r.Policy("before:", r.policy)
	return r
}

func (r *rig) take(key string, cost int64) *core.Take {
	return &core.Take{Policy: r.policy, Key: key, Cost: cost}
}

// refuse lets the store refuse the cost at epoch: all of the burst is in use.
func (r *rig) refuse(key string, cost int64, sent time.Duration) {
	r.Helper()
	l := r.policy.Limits()[0]
	reply := []int64{epoch, -1 - l.Burst*l.Period.Microseconds()/l.Rate}
	t := r.take(key, cost)
	res, _, err := r.policy.Spec().Explain(*t, append([]int64(nil), reply...))
	require.NoError(r, err)
	require.False(r, res.Allowed())
	r.Keep(r.own, t, reply, &res, sent)
}

func (r *rig) answers(key string, cost int64) bool {
	r.Helper()
	res, ok := r.Answer(r.own, r.take(key, cost), r.Now())
	require.False(r, res.Allowed())
	return ok
}

func TestAnswer(t *testing.T) {
	r := newRig(t, 64, "p: 3/3h")
	require.False(t, r.answers("k", 1))
	sent := r.Now()
	r.now += 10 * time.Millisecond
	r.refuse("k", 1, sent)
	r.now += 5*time.Millisecond + 999
	res, ok := r.Answer(r.own, r.take("k", 1), r.Now())
	require.True(t, ok)
	assert.Equal(t, core.Refused, res.Outcome)
	assert.EqualValues(t, epoch+5000, res.At, "from the reply on")
	assert.Equal(t, time.Hour-5*time.Millisecond, res.RetryAfter)
	assert.Equal(t, 3*time.Hour-5*time.Millisecond, res.ResetAfter)
	res, ok = r.Answer(r.own, r.take("k", 2), r.Now())
	require.True(t, ok)
	assert.Equal(t, 2*time.Hour-5*time.Millisecond, res.RetryAfter, "each cost has its own answer")
	res, ok = r.Answer(r.own, r.take("k", 4), r.Now())
	require.True(t, ok)
	assert.Equal(t, core.Never, res.Outcome)
	assert.EqualValues(t, 3, r.Hits())

	for what, take := range map[string]*core.Take{
		"what there is": {Policy: r.policy, Key: "k", Cost: 9, AtMost: true},
		"a look":        {Policy: r.policy, Key: "k", AtMost: true},
	} {
		res, ok = r.Answer(r.own, take, r.Now())
		require.True(t, ok, what)
		assert.Equal(t, core.Refused, res.Outcome, what)
		assert.Equal(t, time.Hour-5*time.Millisecond, res.RetryAfter, "%s: until there is a unit", what)
	}
	assert.EqualValues(t, 5, r.Hits())

	for what, take := range map[string]*core.Take{
		"a peek":         r.take("k", 0),
		"a forced clock": {Policy: r.policy, Key: "k", Cost: 1, Now: epoch},
		"another key":    r.take("K", 1),
	} {
		_, ok := r.Answer(r.own, take, r.Now())
		assert.False(t, ok, what)
	}
	_, ok = r.Answer(r.Policy("other:", r.policy), r.take("k", 1), r.Now())
	assert.False(t, ok, "another policy")
	_, ok = r.Answer(r.Policy("before:", core.MustParse(r.policy.String())), r.take("k", 1), r.Now())
	assert.True(t, ok, "the same policy, built again")
	assert.EqualValues(t, 6, r.Hits())
}

// An entry dies when what was refused fits, counted from when it was sent, and after a second.
func TestDies(t *testing.T) {
	for _, c := range []struct {
		policy string
		cost   int64
		lives  time.Duration
	}{
		{"p: 1/1h", 1, time.Second},
		{"p: 1/1h", 9, time.Second}, // never
		{"p: 2/200ms", 1, 100 * time.Millisecond},
		{"p: 2/200ms", 2, 200 * time.Millisecond},
		{"p: 1/1h leaky-bucket", 1, 250 * time.Millisecond}, // waits for its turn, and may give up
		{"p: 1/1h; wait 2h", 1, 250 * time.Millisecond},
	} {
		r := newRig(t, 64, c.policy)
		sent := r.Now()
		r.now += 50 * time.Millisecond
		r.refuse("k", c.cost, sent)
		r.now = sent + c.lives - 2*time.Microsecond
		assert.True(t, r.answers("k", c.cost), c)
		r.now = sent + c.lives
		assert.False(t, r.answers("k", c.cost), c)
		r.now = sent + 3*time.Second
		r.refuse("k", c.cost, sent)
		assert.False(t, r.answers("k", c.cost), "%v: a reply from another time", c)
	}
}

// The server rounds its clock down: when it read its clock, there may have been a microsecond
// more. So less than what was refused is asked for at the store as soon as it may fit.
func TestRoundedClock(t *testing.T) {
	r := newRig(t, 64, "p: 3/3ms")
	sent := r.Now()
	r.refuse("k", 2, sent)
	r.now = sent + 998*time.Microsecond + 999
	assert.True(t, r.answers("k", 1))
	r.now = sent + 999*time.Microsecond
	assert.False(t, r.answers("k", 1))
	assert.True(t, r.answers("k", 2))
}

// A refusal that was sent before a key was changed does not come back after it.
func TestForget(t *testing.T) {
	r := newRig(t, 64, "p: 1/1h")
	r.refuse("k", 1, r.Now())
	require.True(t, r.answers("k", 1))
	before := r.Now()
	r.now++
	r.Forget(r.own, "k")
	assert.False(t, r.answers("k", 1), "what is known")
	r.refuse("k", 1, before)
	assert.False(t, r.answers("k", 1), "what was sent before")
	r.refuse("k", 1, r.Now())
	assert.False(t, r.answers("k", 1), "what was sent at the same instant")
	r.now++
	r.refuse("k", 1, r.Now())
	assert.True(t, r.answers("k", 1), "what was sent afterwards")
}

// From when units are given back now and then, nothing lives for longer than is promised then.
func TestGivesBack(t *testing.T) {
	r := newRig(t, 64, "p: 1/1h")
	r.refuse("k", 1, r.Now())
	r.now += 250 * time.Millisecond
	require.True(t, r.answers("k", 1))
	r.GivesBack(r.own)
	assert.False(t, r.answers("k", 1))
	r.refuse("k", 1, r.Now())
	r.now += 250*time.Millisecond - 2*time.Microsecond
	assert.True(t, r.answers("k", 1))
	r.now += 2 * time.Microsecond
	assert.False(t, r.answers("k", 1))
}

// What was charged ends what was decided before, also what is still under way then, and so does a
// decision by other numbers, which may have read something else out of the same state. Nothing
// else does.
func TestSeen(t *testing.T) {
	more := core.MustParse("p: 1/1h burst 2")
	for _, c := range []struct {
		name  string
		took  int64
		other bool
		ends  bool
	}{
		{"a charge", 1, false, true},
		{"a charge by other numbers", 1, true, true},
		{"a peek", 0, false, false},
		{"a peek by other numbers", 0, true, true},
	} {
		// At epoch k and another are refused; then, or before, c is decided.
		start := func() (r *rig, sent time.Duration, seen func(at int64, sent time.Duration)) {
			r = newRig(t, 4, "p: 1/1h")
			take, p := r.take("k", 1), r.own
			if c.other {
				take.Policy, p = more, r.Policy("before:", more)
			}
			sent = r.Now()
			r.now++
			return r, sent, func(at int64, sent time.Duration) {
				r.Seen(p, take, &core.Result{Outcome: core.Admitted, Taken: c.took, At: at}, sent)
			}
		}
		r, sent, seen := start()
		r.refuse("k", 1, sent)
		r.refuse("another", 1, sent)
		seen(epoch+1, sent)
		assert.Equal(t, !c.ends, r.answers("k", 1), "%s afterwards", c.name)
		assert.True(t, r.answers("another", 1), c.name)

		r, sent, seen = start()
		seen(epoch+1, sent)
		r.refuse("k", 1, sent)
		assert.False(t, r.answers("k", 1), "%s afterwards, of which is known before", c.name)
		r.now++
		r.refuse("k", 1, r.Now())
		assert.True(t, r.answers("k", 1), "a refusal of a clock that has stepped back since %s", c.name)

		for _, first := range []bool{true, false} {
			r, sent, seen = start()
			if first {
				seen(epoch-1, sent)
			}
			r.refuse("k", 1, sent)
			if !first {
				seen(epoch-1, sent)
			}
			assert.True(t, r.answers("k", 1), "%s before, of which is known first: %v", c.name, first)
		}
	}
}

// Of a policy whose script replies with a summary, each cost has an entry of its own.
func TestCostsOfASummary(t *testing.T) {
	r := newRig(t, 64, "p: 9/1h sliding-log")
	keep := func(cost int64) {
		reply := []int64{epoch, -1 - 9, epoch - 2, epoch - 5, epoch - 5}
		res, _, err := r.policy.Spec().Explain(*r.take("k", cost), append([]int64(nil), reply...))
		require.NoError(t, err)
		r.Keep(r.own, r.take("k", cost), reply, &res, r.Now())
	}
	keep(1)
	assert.True(t, r.answers("k", 1))
	assert.False(t, r.answers("k", 2))
	keep(2)
	assert.True(t, r.answers("k", 1))
	assert.True(t, r.answers("k", 2))
}

// A crowd of keys that are refused once each takes the places of others like them, not that of a
// key that does not stop; and there are never more than there is room for.
func TestCrowd(t *testing.T) {
	const entries = 1 << 10
	r := newRig(t, entries, "p: 1/1h")
	survived := 0
	for i := range 20 * entries {
		r.now += time.Microsecond
		if i%5000 == 0 {
			r.refuse("victim", 1, r.Now())
			require.True(t, r.answers("victim", 1))
		}
		r.refuse(fmt.Sprint("crowd ", i), 1, r.Now())
		if r.answers("victim", 1) {
			survived++
		}
	}
	assert.Equal(t, 20*entries, survived)
	alive := 0
	for i := range 20 * entries {
		if r.answers(fmt.Sprint("crowd ", i), 1) {
			alive++
		}
	}
	assert.LessOrEqual(t, alive, entries)
	assert.Greater(t, alive, entries/2)

	// Where every place is taken by a key that does not stop, the next one has its turn.
	r = newRig(t, 4, "p: 1/1h")
	for i := range 8 {
		r.now += time.Microsecond
		key := fmt.Sprint(i)
		r.refuse(key, 1, r.Now())
		assert.True(t, r.answers(key, 1))
	}
}

// However long keys are, what is kept of them is short.
func TestMemory(t *testing.T) {
	const entries = 1 << 14
	r := newRig(t, entries, "p: 1/1h")
	size := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := size()
	for i := range 4 * entries {
		r.refuse(fmt.Sprintf("%0*d", 2000, i), 1, r.Now())
	}
	after := size()
	assert.Less(t, int64(after)-int64(before), int64(entries*300))
	runtime.KeepAlive(r)
}

// A long key goes by its hash, which is not taken for a key.
func TestLongKeys(t *testing.T) {
	r := newRig(t, 4, "p: 1/1h")
	long := strings.Repeat("k", 201)
	sum := sha256.Sum256([]byte(long))
	r.refuse(long, 1, r.Now())
	assert.True(t, r.answers(long, 1))
	assert.False(t, r.answers(long+"k", 1))
	assert.False(t, r.answers(long[1:], 1))
	for range 100 { // of four entries, in one set
		assert.False(t, r.answers(string(sum[:]), 1))
	}
}

func TestNone(t *testing.T) {
	var c *denials.Cache
	p := core.MustParse("p: 1/1h")
	own := c.Policy("before:", p)
	take := core.Take{Policy: p, Key: "k", Cost: 1}
	c.Keep(own, &take, []int64{epoch, -1 - 3_600_000_000}, &core.Result{}, c.Now())
	c.Seen(own, &take, &core.Result{}, c.Now())
	_, ok := c.Answer(own, &take, c.Now())
	assert.False(t, ok)
	c.Forget(own, "k")
	c.GivesBack(own)
	assert.Zero(t, c.Hits())
}

func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates too")
	}
	for _, r := range refused {
		c := denials.New(64, still)
		p, take := filled(t, c, r.policy, r.reply)
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			_, ok := c.Answer(p, &take, c.Now())
			require.True(t, ok)
		}), r.policy)
		take.Key = "another"
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			_, ok := c.Answer(p, &take, c.Now())
			require.False(t, ok)
		}), r.policy)
	}
}

// Everything at once, for the race detector: no answer is older than the last change of its key that
// was over before it was asked for.
func TestConcurrent(t *testing.T) {
	c := denials.New(16, func() time.Duration { return time.Since(started) + 1 })
	p := core.MustParse("p: 1/1h")
	own := c.Policy("before:", p)
	var keys [8]struct {
		sync.Mutex
		forgotten time.Duration
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 3000 {
				i := rand.IntN(len(keys))
				take := core.Take{Policy: p, Key: fmt.Sprint(i), Cost: 1}
				k := &keys[i]
				switch rand.IntN(8) {
				case 0:
					begin := c.Now()
					c.Forget(own, take.Key)
					k.Lock()
					k.forgotten = max(k.forgotten, begin)
					k.Unlock()
				case 1, 2:
					reply := []int64{epoch, -1 - 3_600_000_000}
					c.Keep(own, &take, reply, &core.Result{RetryAfter: time.Hour}, c.Now())
				default:
					k.Lock()
					forgotten := k.forgotten
					k.Unlock()
					now := c.Now()
					res, ok := c.Answer(own, &take, now)
					if !ok {
						continue
					}
					if kept := now - (time.Hour - res.RetryAfter); kept <= forgotten {
						t.Errorf("an answer that was kept at %v, and forgotten at %v", kept, forgotten)
					}
				}
			}
		})
	}
	all.Wait()
	assert.Positive(t, c.Hits())
}
