package denials_test

import (
	"bytes"
	crand "crypto/rand"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/denials"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/lua"
)

var (
	operations = flag.Int("operations", 3000, "how many random operations the model is tried by, for each of its policies")
	seed       = flag.Uint64("seed", rand.Uint64(), "which operations")
)

var sharedServer = redistest.Share(func(t testing.TB) *redistest.Server { return redistest.Single(t) })

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// Whatever this process and others take, give back, reset and change, in whatever order replies
// come, and however the clocks step: each answer of the cache is one that the scripts themselves
// would have given, to the state that the key had at an instant within the time that is promised,
// and not before the latest charge of which this process knows, nor before its latest call by
// other numbers. It never admits, it never refuses what nobody has made room for, and its
// RetryAfter is never too short.
func TestModel(t *testing.T) {
	t.Parallel()
	for _, variants := range [][2]string{
		{"10/1s", "7/1s"},
		{"3/1s", "1000/1s"},
		{"3/1h burst 40 debt 5", "9/1h burst 120 debt 15"},
		{"20/1s burst 3; wait 150ms", "40/1s burst 4 debt 2; wait 150ms"},
		{"10/1s token-bucket", "7/1s token-bucket burst 3"},
		{"5/500ms token-bucket burst 8 debt 3; wait 1s", "3/500ms token-bucket burst 4 debt 7; wait 1s"},
		{"10/1s leaky-bucket burst 4", "20/1s leaky-bucket burst 8"},
		{"5/1s fixed-window", "7/2s fixed-window"},
		{"5/1s fixed-window aligned", "9/1s fixed-window aligned"},
		{"5/1m fixed-window calendar UTC", "9/1m fixed-window calendar UTC"},
		{"10/1s sliding-window", "8/1h sliding-window"},
		{"30/3s sliding-window buckets 3", "50/1s sliding-window buckets 3"},
		{"10/1s sliding-counter", "8/10s sliding-counter"},
		{"10/1s sliding-log", "8/1h sliding-log"},
		{"5/1s, 20/1m sliding-window", "6/1s, 10/1m sliding-window"},
		{"5/1s fixed-window, 20/1m sliding-log", "6/1s fixed-window, 9/1m sliding-log"},
		{"4/1s token-bucket, 6/2s leaky-bucket", "7/1s token-bucket, 9/3s leaky-bucket burst 6"},
		{"4/1s, 7/1s token-bucket, 6/1s fixed-window, 8/2s sliding-counter", "5/1s, 6/1s token-bucket, 9/1s fixed-window, 8/2s sliding-counter"},
		{"9/1m, 5/1s", "7/1m, 6/1s"},
	} {
		t.Run(variants[0], func(t *testing.T) {
			t.Parallel()
			hits, clean := 0, 0
			for i, vary := range []bool{false, true} {
				m := newModel(t, variants, []int{64, 4}[i], *seed+uint64(i))
				m.vary = vary
				for n := range *operations / 2 {
					m.step()
					if t.Failed() {
						t.Fatalf("operation %d of -seed %d -operations %d", n, *seed, *operations)
					}
				}
				assert.EqualValues(t, m.hits, m.cache.Hits())
				hits, clean = hits+m.hits, clean+m.clean
			}
			// A call that gives back may be under way for most of a run, so that few answers are clean.
			assert.Greater(t, hits, *operations/200, "answers of the cache")
			assert.Positive(t, clean, "answers while nobody gave back")
		})
	}
}

// model is a server, this process with a cache, and others without.
type model struct {
	*testing.T
	rng     *rand.Rand
	rdb     *redis.Client
	scripts map[string]*redis.Script // by what they do and their kinds
	cache   *denials.Cache

	mono   time.Duration // this process's clock
	offset int64         // of the server's clock, in microseconds

	vary     bool // which policy this process and others ask by
	policies [2]core.Policy
	prepared [2]*denials.Policy
	keys     []*history

	// fits is the time at which as much as was last refused, or less, will fit, by the server's clock.
	fits    int64
	fitting *call

	pending     []*call
	hits, clean int
	givesBack   bool
}

// history is the past of a key.
type history struct {
	name, key string
	versions  []version
	// floor is the first version that an answer by each of the policies may still be made of, and
	// numbers the policy that anybody last asked by.
	floor   [2]int
	numbers int
	// disturbed is the time at which anything was last given back that this process did not give back.
	disturbed time.Duration
	receipts  []core.Refund
	refusals  []refusal
}

// refusal is one that this process has received.
type refusal struct {
	which   int
	cost    int64
	sent    time.Duration
	version int // of the state
	reply   []int64
}

// version is a state of a key, from then on.
type version struct {
	from time.Duration
	text []byte
}

// call is a Take, Refund or Reset of this process that is under way.
type call struct {
	h      *history
	which  int // of the policies
	take   core.Take
	sent   time.Duration
	change func() // of a Refund or Reset
	reply  []int64
	ran    bool
	state  int // the version that it has led to
}

func newModel(t *testing.T, variants [2]string, entries int, seed uint64) *model {
	m := &model{
		T: t, rng: rand.New(rand.NewPCG(seed, 1)), rdb: sharedServer(t).Client(t),
		scripts: map[string]*redis.Script{}, mono: time.Hour, offset: epoch,
	}
	m.offset += m.rng.Int64N(int64(24 * time.Hour / time.Microsecond))
	m.cache = denials.New(entries, func() time.Duration { return m.mono })
	prefix := crand.Text()
	for i, text := range variants {
		m.policies[i] = core.MustParse("model: " + text)
		m.prepared[i] = m.cache.Policy(prefix, m.policies[i])
	}
	spec := m.policies[0].Spec()
	require.Equal(t, spec.Shape(), m.policies[1].Spec().Shape())
	for op, compose := range map[string]func(string) (string, error){"take": lua.Take, "upto": lua.UpTo, "refund": lua.Refund} {
		for _, p := range m.policies {
			kinds := p.Spec().Kinds()
			text, err := compose(kinds)
			require.NoError(t, err)
			m.scripts[op+kinds] = redis.NewScript(text)
		}
	}
	for _, key := range []string{"a", "b", strings.Repeat("c", 300)} {
		m.keys = append(m.keys, &history{name: prefix + ":" + key, key: key, versions: []version{{}}, disturbed: -time.Hour})
	}
	m.givesBack = m.policies[0].Options().Wait > 0 || m.policies[1].Options().Wait > 0 || strings.Contains(spec.Shape(), "l")
	return m
}

// now is the server's clock.
func (m *model) now() int64 { return m.offset + m.mono.Nanoseconds()/1000 }

func (m *model) chance(percent int) bool { return m.rng.IntN(100) < percent }

func (m *model) step() {
	switch n := m.rng.IntN(100); {
	case n < 60:
		m.mono += time.Duration(m.rng.Int64N(int64(2 * time.Millisecond)))
	case n < 85:
		m.mono += time.Duration(m.rng.Int64N(int64(100 * time.Millisecond)))
	case n < 88:
		m.mono += time.Duration(m.rng.Int64N(int64(1200 * time.Millisecond)))
	default: // to about when something fits
		if left := m.fits - m.now(); 0 < left && left < 1_500_000 {
			m.mono += time.Duration(max(0, left*1000-m.rng.Int64N(m.rng.Int64N(400_000)+1)+1000))
			m.askFor(m.fitting.h, m.fitting.which, m.fitting.take)
			return
		}
	}
	h := m.keys[min(m.rng.IntN(6), len(m.keys)-1)] // some more than others
	switch n := m.rng.IntN(1000); {
	case n < 640:
		m.ask(h)
	case n < 760: // another process
		which := m.which()
		m.run(h, which, m.someTake(which))
	case n < 775 && len(h.receipts) > 0:
		m.refund(h, m.chance(50))
	case n < 779:
		m.reset(h, m.chance(50))
	case n < 781:
		m.offset += m.rng.Int64N(4_000_000) - 2_000_000
		for _, h := range m.keys {
			h.disturbed = m.mono
		}
	default:
		m.proceed()
	}
}

func (m *model) which() int {
	if m.vary && m.chance(10) {
		return 1
	}
	return 0
}

func (m *model) someTake(which int) core.Take {
	p := m.policies[which]
	limit := p.Limits()[m.rng.IntN(len(p.Limits()))]
	t := core.Take{Policy: p, Key: "k", Cost: 1}
	switch n := m.rng.IntN(20); {
	case n < 3:
		t.Cost = 1 + m.rng.Int64N(limit.Burst)
	case n < 4:
		t.Cost = 1 + m.rng.Int64N(limit.Burst+limit.Debt+2)
	case n < 6:
		t.Cost, t.AtMost, t.Debt = m.rng.Int64N(3), true, m.chance(50)
	case n < 7:
		t.Cost = 0
	}
	if wait := p.Options().Wait; wait > 0 && !t.AtMost && m.chance(50) {
		t.Wait = time.Duration(m.rng.Int64N(int64(2 * wait)))
	}
	return t
}

// ask is a Take of this process, which goes to the server unless the cache has an answer.
func (m *model) ask(h *history) {
	which := m.which()
	m.askFor(h, which, m.someTake(which))
}

func (m *model) askFor(h *history, which int, t core.Take) {
	t.Key = h.key
	sent := m.cache.Now()
	if res, ok := m.cache.Answer(m.prepared[which], &t, sent); ok {
		m.check(h, which, t, res)
		return
	}
	m.pending = append(m.pending, &call{h: h, which: which, take: t, sent: sent})
	if m.chance(80) { // a quiet network
		m.mono += time.Duration(m.rng.Int64N(int64(200 * time.Microsecond)))
		last := len(m.pending) - 1
		m.advance(last)
		m.mono += time.Duration(m.rng.Int64N(int64(200 * time.Microsecond)))
		m.advance(last)
	}
}

func (m *model) proceed() {
	if len(m.pending) > 0 {
		m.advance(m.rng.IntN(len(m.pending)))
	}
}

// advance lets a call be executed, or after that come to its end.
func (m *model) advance(i int) {
	c := m.pending[i]
	switch {
	case !c.ran && c.change != nil:
		c.change()
		c.ran, c.state = true, len(c.h.versions)-1
	case !c.ran:
		c.reply = m.run(c.h, c.which, c.take)
		c.ran, c.state = true, len(c.h.versions)-1
	default:
		m.pending = append(m.pending[:i], m.pending[i+1:]...)
		if c.change != nil {
			m.cache.Forget(m.prepared[c.which], c.h.key)
			c.h.raise(0, c.state)
			c.h.raise(1, c.state)
			return
		}
		reply := append([]int64(nil), c.reply...)
		res, again, err := c.take.Policy.Spec().Explain(c.take, c.reply)
		require.NoError(m, err)
		require.False(m, again)
		c.h.raise(1-c.which, c.state)
		if res.Taken > 0 {
			c.h.raise(c.which, c.state)
		}
		if res.Allowed() {
			m.cache.Seen(m.prepared[c.which], &c.take, &res, c.sent)
		} else {
			m.fitting = &call{h: c.h, which: c.which, take: c.take}
			m.fitting.take.Cost, m.fitting.take.AtMost, m.fitting.take.Debt = 1+m.rng.Int64N(max(1, c.take.Cost)), false, false
			at := m.fitting.take
			at.Now = res.At
			less, _, _ := c.take.Policy.Spec().Step(c.h.versions[c.state].text, at)
			m.fits = res.At + less.RetryAfter.Microseconds()
			m.cache.Keep(m.prepared[c.which], &c.take, reply, &res, c.sent)
			cost := c.take.Cost
			if c.take.AtMost {
				cost, reply = 1, append(reply[:1:1], reply[2:]...)
			}
			c.h.refusals = append(c.h.refusals, refusal{c.which, cost, c.sent, c.state, reply})
		}
	}
}

// raise leaves no answer of a policy to what was before a version.
func (h *history) raise(which, version int) { h.floor[which] = max(h.floor[which], version) }

// run takes at the server, for this process or another.
func (m *model) run(h *history, which int, t core.Take) []int64 {
	t.Now = m.now()
	args, script := t.Policy.Spec().TakeArgs(t, t.Now), m.scripts["take"+t.Policy.Spec().Kinds()]
	if t.AtMost {
		script = m.scripts["upto"+t.Policy.Spec().Kinds()]
	}
	if which != h.numbers {
		h.numbers, h.disturbed = which, m.mono // they may cut off what is in use
	}
	reply := m.script(h, script, append(args, t.Now))
	res, _, err := t.Policy.Spec().Explain(t, append([]int64(nil), reply...))
	require.NoError(m, err)
	if res.Taken > 0 {
		h.receipts = append(h.receipts, core.Refund{Policy: t.Policy, Key: h.key, Receipt: res, Units: res.Taken})
	}
	return reply
}

// script runs one and notes what it leaves.
func (m *model) script(h *history, script *redis.Script, args []int64) []int64 {
	ctx := m.Context()
	all := make([]any, len(args))
	for i, n := range args {
		all[i] = n
	}
	reply, err := script.Run(ctx, m.rdb, []string{h.name}, all...).Int64Slice()
	require.NoError(m, err)
	m.look(h)
	return reply
}

func (m *model) look(h *history) {
	text, err := m.rdb.Get(m.Context(), h.name).Bytes()
	if !errors.Is(err, redis.Nil) {
		require.NoError(m, err)
	}
	if !bytes.Equal(text, h.versions[len(h.versions)-1].text) {
		h.versions = append(h.versions, version{m.mono, text})
	}
}

func (m *model) refund(h *history, own bool) {
	i := m.rng.IntN(len(h.receipts))
	r := h.receipts[i]
	h.receipts = append(h.receipts[:i], h.receipts[i+1:]...)
	if m.chance(30) {
		r.Units = 1
	}
	m.change(h, own, true, func() {
		r.Now = m.now()
		m.script(h, m.scripts["refund"+r.Policy.Spec().Kinds()], append(r.Policy.Spec().RefundArgs(r, r.Now), r.Now))
	})
}

func (m *model) reset(h *history, own bool) {
	m.change(h, own, false, func() {
		require.NoError(m, m.rdb.Del(m.Context(), h.name).Err())
		m.look(h)
	})
}

// change is a Refund or Reset: of this process, which tells the cache, or of another.
func (m *model) change(h *history, own, refund bool, do func()) {
	if !own {
		do()
		h.disturbed = m.mono
		return
	}
	which := m.which()
	if refund {
		m.cache.GivesBack(m.prepared[which])
		m.givesBack = true
	}
	m.cache.Forget(m.prepared[which], h.key)
	h.raise(0, len(h.versions)-1)
	h.raise(1, len(h.versions)-1)
	m.pending = append(m.pending, &call{h: h, which: which, change: do})
	if m.chance(80) {
		m.advance(len(m.pending) - 1)
		m.advance(len(m.pending) - 1)
	}
}

// check judges an answer of the cache.
func (m *model) check(h *history, which int, t core.Take, res core.Result) {
	m.hits++
	require.False(m, res.Allowed())
	require.Zero(m, res.Taken)
	require.True(m, t.AtMost || t.Cost > 0)
	require.Equal(m, res.Outcome == core.Refused, res.RetryAfter > 0)
	lives := time.Second
	if m.givesBack {
		lives = 250 * time.Millisecond
	}
	undisturbed := m.mono-h.disturbed > time.Second && !slices.ContainsFunc(m.pending, func(c *call) bool {
		return c.h == h && c.change != nil && c.ran // and this process does not know yet that it is done
	})
	spec, now := m.policies[which].Spec(), m.now()
	at := func(text []byte, now int64) core.Result {
		t := t
		t.Now = now
		want, _, _ := spec.Step(text, t)
		return want
	}
	if undisturbed {
		m.clean++
		require.LessOrEqual(m, res.At, now)
		require.Greater(m, res.At, now-lives.Microseconds())
		plain := at(h.versions[len(h.versions)-1].text, now)
		require.False(m, plain.Allowed(), "the plain store admits %+v, the cache says %+v", plain, res)
	}
	var seen []core.Result
	for i := len(h.versions) - 1; i >= h.floor[which]; i-- {
		if i+1 < len(h.versions) && h.versions[i+1].from < m.mono-lives {
			break // it ended before
		}
		want := at(h.versions[i].text, res.At)
		if m.same(spec, want, res) {
			if undisturbed {
				require.GreaterOrEqual(m, res.RetryAfter, at(h.versions[i].text, now).RetryAfter)
			}
			return
		}
		seen = append(seen, want)
	}
	if m.vary && h.repeats(which, t, res, m.mono-lives) {
		return
	}
	for i := max(0, len(h.versions)-8); i < len(h.versions); i++ {
		m.Logf("%d (floor %d): %v %s", i, h.floor[which], h.versions[i].from-m.mono, h.versions[i].text)
	}
	m.Errorf("%+v of %v is answered with\n%+v, which no state of the last %v gives:\n%+v", t, m.policies[which], res, lives, seen)
}

// repeats reports whether an answer follows from the refusals that this process received after some instant. What
// was written with another period, a window puts into the one of now each time that it is read,
// until somebody is admitted: only the script that read it knows which one that was.
func (h *history) repeats(which int, t core.Take, res core.Result, after time.Duration) bool {
	return slices.ContainsFunc(h.refusals, func(r refusal) bool {
		if r.which != which || r.sent <= after || r.version < h.floor[which] {
			return false
		}
		same, refused := t.Policy.Spec().Again(t, r.cost, slices.Clone(r.reply), res.At, res.At)
		return refused && same.Equal(res)
	})
}

// same leaves Remaining aside where the script replies with a summary, from which one sees at least
// as little.
func (m *model) same(spec core.Spec, want, got core.Result) bool {
	if !spec.Summarized() {
		return want.Equal(got)
	}
	if got.Remaining > want.Remaining && got.Limit == want.Limit {
		return false
	}
	for i := range m.policies[0].Limits() {
		w, g := want.Each(i), got.Each(i)
		if g.Remaining > w.Remaining {
			return false
		}
		g.Remaining = w.Remaining
		if w != g {
			return false
		}
	}
	return want.Outcome == got.Outcome && want.At == got.At && want.RetryAfter == got.RetryAfter
}
