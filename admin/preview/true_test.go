package preview_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/preview"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/redistest"
)

// store is one whose clock a test forces.
type store interface {
	core.Store
	core.PermitStore
	core.StateStore
}

// epoch is the time of the tests: a Friday in 2027.
const epoch = 1_800_000_000_000_000

// What a preview says of a key is what the next request after the change gets, under all algorithms, whatever state
// there is: 1000 random changes in each store. WEIR_PREVIEW_CHANGES has another number.
func TestPreviewIsTrue(t *testing.T) {
	t.Parallel()
	changes := 1000
	if n, err := strconv.Atoi(os.Getenv("WEIR_PREVIEW_CHANGES")); err == nil {
		changes = n
	}
	t.Run("process", func(t *testing.T) {
		t.Parallel()
		memory, err := core.NewMemory(core.MemoryOptions{})
		require.NoError(t, err)
		isTrue(t, memory, func(now int64) *counts.Stores {
			stores, err := counts.New(counts.Options{Process: memory, Now: now})
			require.NoError(t, err)
			return stores
		}, counts.Where{Process: true}, changes)
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		rdb := redistest.Single(t).Client(t)
		of, err := redisstore.New(rdb, redisstore.Options{Prefix: "shop", Deadline: time.Minute, DenyCache: -1})
		require.NoError(t, err)
		isTrue(t, of, func(now int64) *counts.Stores {
			stores, err := counts.New(counts.Options{Redis: rdb, Now: now})
			require.NoError(t, err)
			return stores
		}, counts.Where{Prefix: "shop"}, changes)
	})
}

func isTrue(t *testing.T, s store, open func(now int64) *counts.Stores, where counts.Where, changes int) {
	random := rand.New(rand.NewPCG(uint64(changes), 18))
	outcomes := map[string]int{}
	for i := range changes {
		r := &run{T: t, Rand: random, store: s, key: fmt.Sprintf("user=%d", i), now: epoch + random.Int64N(int64(40*24*time.Hour/time.Microsecond))}
		r.change(i, open, where, outcomes)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d changes: %v", changes, outcomes)
	for _, what := range []string{"before admitted", "before refused", "after admitted", "after at-limit", "after refused", "afresh", "kept", "waits", "ahead of the clock"} {
		require.Positive(t, outcomes[what], what)
	}
	for _, a := range append(storetest.Algorithms(), core.Concurrent) {
		require.Positive(t, outcomes["of "+a.String()], a)
	}
}

// run is one random state of one key, and one change.
type run struct {
	*testing.T
	*rand.Rand
	store store
	key   string
	now   int64
}

var algorithms = []string{
	"", "token-bucket", "leaky-bucket", "fixed-window", "fixed-window aligned", "calendar", "sliding-window", "sliding-counter", "sliding-log", "concurrent",
}

func (r *run) change(i int, open func(int64) *counts.Stores, where counts.Where, outcomes map[string]int) {
	p, q := r.policies(i)
	state := r.use(p, q)
	if r.IntN(10) == 0 { // the clock of a server that has failed over to one that is slower
		r.now -= r.Int64N(int64(time.Hour / time.Microsecond))
		outcomes["ahead of the clock"]++
	}
	said, err := preview.Of(r.Context(), open(r.now), preview.Ask{
		Policy: p.Name(), After: policies.Policy{Text: q.String()},
		Rules: []counts.Rule{{Policy: p.Name(), Code: p.String(), Where: where}},
		Keys:  []preview.Key{{Key: r.key}},
	})
	require.NoError(r, err)
	require.Len(r, said.Rules, 1)
	require.Len(r, said.Rules[0].Keys, 1)
	told := fmt.Sprintf("%d: %v, then %v: %s: %+v", i, p, q, state, said.Rules[0])
	key := said.Rules[0].Keys[0]
	require.Empty(r, key.Why, told)
	require.Equal(r, r.now, key.At.UnixMicro(), told)
	if r.IntN(2) == 0 { // a peek corrects what makes no sense, and so there is one only
		r.gets(p, &key.Before, "before", told, outcomes)
	} else {
		r.gets(q, &key.After, "after", told, outcomes)
	}
	for _, l := range p.Limits() {
		outcomes["of "+l.Algorithm.String()]++
	}
	if e := said.Rules[0].Entries; len(e) > 0 && e[0].Change.Kept {
		outcomes["kept"]++
	} else if len(e) > 0 {
		outcomes["afresh"]++
	}
}

// gets compares what was said with what a peek says, and what the next request then gets.
func (r *run) gets(p core.Policy, said *preview.Next, when, told string, outcomes map[string]int) {
	res := core.Result{Outcome: core.Admitted}
	if p.Spec().Shape() != "" {
		peek, err := r.store.Take(r.Context(), core.Take{Policy: p, Key: r.key, Now: r.now})
		require.NoError(r, err)
		if _, _, permits := p.Concurrent(); !permits {
			require.Equal(r, peek.Remaining, said.Remaining, "%s %s", when, told)
		}
		res, err = r.store.Take(r.Context(), core.Take{Policy: p, Key: r.key, Cost: 1, Now: r.now})
		require.NoError(r, err)
	}
	if n, _, permits := p.Concurrent(); permits && res.Allowed() {
		permit := core.Permit{Policy: p, Key: r.key, ID: "next", Now: r.now + res.Delay.Microseconds()}
		held, err := r.store.Acquire(r.Context(), permit)
		require.NoError(r, err)
		require.Equal(r, n, held.Limit, told)
		p.Combine(&res, &held)
	}
	require.Equal(r, res.Outcome.String(), said.Outcome, "%s %s", when, told)
	require.Equal(r, res.RetryAfter, said.RetryAfter, "%s %s", when, told)
	require.Equal(r, res.Delay, said.Delay, "%s %s", when, told)
	outcomes[when+" "+said.Outcome]++
	if said.Delay > 0 {
		outcomes["waits"]++
	}
}

// policies returns a policy of a code and another text that its processes can use.
func (r *run) policies(i int) (p, q core.Policy) {
	forms := make([]string, 1+r.IntN(8)/5+r.IntN(8)/6)
	for i := range forms {
		forms[i] = algorithms[r.IntN(len(algorithms))]
	}
	waits := r.IntN(4) == 0
	name := fmt.Sprintf("p%d: ", i)
	for {
		var err error
		if p, err = core.Parse(name + r.text(forms, waits)); err != nil {
			if strings.Contains(err.Error(), "reserve") || strings.Contains(err.Error(), "at most one") || strings.Contains(err.Error(), "permits") {
				return r.policies(i) // forms that do not go together
			}
			continue
		}
		text := r.text(forms, waits)
		if r.IntN(8) == 0 {
			text += fmt.Sprintf("; epoch %d", r.IntN(3))
		}
		if q, err = enforce.Fits(p, text); err == nil {
			return p, q
		}
	}
}

// text returns limits of these algorithms with numbers so small that much is refused.
func (r *run) text(forms []string, waits bool) string {
	periods := []string{"50ms", "1s", "1s", "7s", "1m", "1h"}
	var limits []string
	for _, form := range forms {
		limit := fmt.Sprintf("%d/%s %s", 1+r.IntN(12), periods[r.IntN(len(periods))], form)
		switch form {
		case "concurrent":
			limit = fmt.Sprintf("%d concurrent lease %s", 1+r.IntN(5), periods[1+r.IntN(5)])
		case "calendar":
			limit = fmt.Sprintf("%d/%s fixed-window calendar %s", 1+r.IntN(12), []string{"1m", "1h", "1d", "7d", "1mo"}[r.IntN(5)], []string{"UTC", "Europe/Berlin", "Asia/Kolkata"}[r.IntN(3)])
		case "", "token-bucket":
			if r.IntN(3) == 0 {
				limit += fmt.Sprintf(" debt %d", 1+r.IntN(6))
			}
			fallthrough
		case "leaky-bucket":
			if r.IntN(3) == 0 {
				limit += fmt.Sprintf(" burst %d", 1+r.IntN(12))
			}
		}
		limits = append(limits, limit)
	}
	text := strings.Join(limits, ", ")
	if waits {
		text += fmt.Sprintf("; wait %s", periods[r.IntN(len(periods))])
	}
	return text
}

// use brings the key into a random state by both policies, mostly by the first, and returns what was done.
func (r *run) use(p, q core.Policy) string {
	var did []string
	for n := r.IntN(12); n > 0; n-- {
		by := p
		if r.IntN(5) == 0 {
			by = q
		}
		if r.IntN(2) == 0 {
			r.now += r.Int64N(1 + by.Limits()[0].Period.Microseconds()/int64(1+r.IntN(8)))
		}
		if by.Spec().Shape() != "" {
			take := core.Take{Policy: by, Key: r.key, Cost: 1 + r.Int64N(6), Now: r.now}
			if take.AtMost = r.IntN(3) == 0; !take.AtMost {
				take.Wait = by.Options().Wait
			} else if r.IntN(3) == 0 {
				take.Debt = true
			}
			res, err := r.store.Take(r.Context(), take)
			require.NoError(r, err)
			did = append(did, fmt.Sprintf("%d by %v: %v", take.Cost, by, res))
		}
		if _, _, permits := by.Concurrent(); permits && r.IntN(2) == 0 {
			res, err := r.store.Acquire(r.Context(), core.Permit{Policy: by, Key: r.key, ID: fmt.Sprint("id", n), Now: r.now})
			require.NoError(r, err)
			did = append(did, fmt.Sprintf("permit by %v: %v", by, res))
		}
	}
	return strings.Join(did, "; ")
}
