package envoyrls_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/grpcmw/envoyrls"
	"github.com/weir-go/weir/internal/redistest"
)

// A model is a second implementation of the service: plain and slow. It walks the configuration as it was written, and
// counts in a map.
type model struct {
	plan    *plan
	counts  map[string]*count
	refused bool // the latest request, so that others were given back
	// together is set if all are asked, whatever the others say, because the store is asked once.
	together bool
}

// count has the hits of a key in a window.
type count struct {
	start time.Time
	used  uint64
}

// limit has the numbers that hold for a descriptor.
type limit struct {
	rule      *limitPlan // nil for an override
	requests  uint32
	unit      rlspb.RateLimitResponse_RateLimit_Unit
	multiple  uint32 // 0 if there is none
	shadow    bool
	quota     bool
	unlimited bool
	key       string // what is counted
}

// seconds has the lengths of the units, as the service of Envoy has them.
var seconds = map[rlspb.RateLimitResponse_RateLimit_Unit]int64{
	rlspb.RateLimitResponse_RateLimit_SECOND: 1,
	rlspb.RateLimitResponse_RateLimit_MINUTE: 60,
	rlspb.RateLimitResponse_RateLimit_HOUR:   3600,
	rlspb.RateLimitResponse_RateLimit_DAY:    86400,
	rlspb.RateLimitResponse_RateLimit_WEEK:   7 * 86400,
	rlspb.RateLimitResponse_RateLimit_MONTH:  30 * 86400,
	rlspb.RateLimitResponse_RateLimit_YEAR:   365 * 86400,
}

func (l *limit) period() time.Duration {
	return time.Duration(seconds[l.unit]*int64(max(1, l.multiple))) * time.Second
}

// window returns when the window of now began. Windows are multiples of the period since 1970.
func (l *limit) window(now time.Time) time.Time {
	n := now.UnixNano()
	return time.Unix(0, n-n%int64(l.period()))
}

// like reports whether a value matches a pattern in which * stands for any text.
func like(pattern, value string) bool {
	if pattern == "" {
		return value == ""
	}
	if pattern[0] == '*' {
		for i := range len(value) + 1 {
			if like(pattern[1:], value[i:]) {
				return true
			}
		}
		return false
	}
	return value != "" && pattern[0] == value[0] && like(pattern[1:], value[1:])
}

// choose returns the node of a level that holds for an entry: by its value, by a wildcard, or by its key alone.
func choose(level []*nodePlan, e *extpb.RateLimitDescriptor_Entry) *nodePlan {
	for _, n := range level {
		if n.key == e.GetKey() && n.value != "" && n.value == e.GetValue() {
			return n
		}
	}
	for _, n := range level {
		if n.key == e.GetKey() && strings.Contains(n.value, "*") && like(n.value, e.GetValue()) {
			return n
		}
	}
	for _, n := range level {
		if n.key == e.GetKey() && n.value == "" {
			return n
		}
	}
	return nil
}

// find returns what holds for a descriptor, or nil.
func (m *model) find(domain string, d *extpb.RateLimitDescriptor) *limit {
	var level []*nodePlan
	known := false
	for _, x := range m.plan.domains {
		if x.name == domain {
			level, known = append(level, x.nodes...), true
		}
	}
	if !known {
		return nil
	}
	if o := d.GetLimit(); o != nil {
		l := &limit{
			requests: o.GetRequestsPerUnit(),
			unit:     rlspb.RateLimitResponse_RateLimit_Unit(o.GetUnit()),
			multiple: o.GetUnitMultiplier().GetValue(),
		}
		l.key = "override " + l.period().String() + named(domain, d, nil)
		return l
	}
	var at *nodePlan
	shared := map[int]string{}
	for i, e := range d.GetEntries() {
		if at = choose(level, e); at == nil {
			return nil
		}
		if at.share {
			shared[i] = at.value
		}
		level = at.children
	}
	if at == nil || at.limit == nil {
		return nil
	}
	return &limit{
		rule: at.limit, requests: at.limit.requests, unit: at.limit.unit, multiple: at.limit.multiple,
		shadow: at.shadow, quota: at.quota, unlimited: at.limit.unlimited,
		key: "rule" + named(domain, d, shared),
	}
}

// named returns a text for the entries of a descriptor, of which some are shared by all values of a wildcard.
func named(domain string, d *extpb.RateLimitDescriptor, shared map[int]string) string {
	text := strconv.Quote(domain)
	for i, e := range d.GetEntries() {
		value := "=" + e.GetValue()
		if pattern, ok := shared[i]; ok {
			value = "~" + pattern
		}
		text += " " + strconv.Quote(e.GetKey()) + strconv.Quote(value)
	}
	return text
}

// asked is a descriptor with a limit.
type asked struct {
	*limit
	count   *count
	cost    uint64
	spent   bool // the cost is of the descriptor itself
	credit  bool
	charged uint64 // may be given back
	over    bool
	left    uint64
}

// answer decides about a request.
func (m *model) answer(r *rlspb.RateLimitRequest, now time.Time) *rlspb.RateLimitResponse {
	limits, replaced := make([]*limit, len(r.GetDescriptors())), map[string]bool{}
	for i, d := range r.GetDescriptors() {
		if limits[i] = m.find(r.GetDomain(), d); limits[i] != nil && limits[i].rule != nil {
			for _, name := range limits[i].rule.replaces {
				replaced[name] = true
			}
		}
	}
	all := make([]*asked, len(limits))
	for i, d := range r.GetDescriptors() {
		l := limits[i]
		if l == nil || l.unlimited || l.rule != nil && l.rule.name != "" && replaced[l.rule.name] {
			continue
		}
		c := m.counts[l.key]
		if c == nil {
			c = &count{}
			m.counts[l.key] = c
		}
		if start := l.window(now); !c.start.Equal(start) {
			*c = count{start: start}
		}
		a := &asked{limit: l, count: c, cost: uint64(max(1, r.GetHitsAddend())), credit: d.GetIsNegativeHits()}
		if own := d.GetHitsAddend(); own != nil {
			a.cost, a.spent = own.GetValue(), own.GetValue() > 0
		}
		all[i] = a
	}
	limited := slices.DeleteFunc(slices.Clone(all), func(a *asked) bool { return a == nil })
	if m.refused = false; m.plan.chargeAll {
		m.chargeAll(limited)
	} else {
		m.charge(limited)
	}
	return m.response(limits, all, now)
}

// remains returns what is left of the limit in its window.
func (a *asked) remains() uint64 { return uint64(a.requests) - min(uint64(a.requests), a.count.used) }

// giveBack gives back n units, as far as they are in use.
func (a *asked) giveBack(n uint64) { a.count.used -= min(n, a.count.used) }

// charge takes of all or of none, but for what was spent already. Credits come first. In their order, the others are
// asked until one refuses; those that are left then are looked at when the others were given back.
func (m *model) charge(all []*asked) {
	refuse := func(a *asked) (refused bool) {
		a.over = true
		refused = !a.shadow && !a.quota && !m.plan.quota && !m.plan.shadow
		m.refused = m.refused || refused
		return refused
	}
	for _, a := range all {
		if a.credit {
			a.giveBack(a.cost)
		} else if a.requests == 0 {
			refuse(a)
		}
	}
	hopeless, over := m.refused, false
	var unasked []*asked
	for _, a := range all {
		a.left = a.remains()
		switch {
		case a.credit || a.requests == 0:
			continue
		case a.cost == 0:
			if a.left == 0 {
				over = refuse(a) || over
			}
			continue
		case a.spent:
			if a.count.used += min(a.cost, a.left); a.cost > a.left {
				over = refuse(a) || over
			}
		case over && !m.together:
			unasked = append(unasked, a)
		case hopeless:
			a.over = a.cost > a.left
		case a.cost > a.left:
			over = refuse(a) || over
		default:
			a.count.used += a.cost
			a.charged = a.cost
		}
		a.left = a.remains()
	}
	if !m.refused {
		return
	}
	for _, a := range all {
		a.giveBack(a.charged)
		a.left += a.charged
	}
	for _, a := range unasked {
		a.left = a.remains()
		a.over = a.cost > a.left
	}
}

// chargeAll charges all, whatever they say, as the service of Envoy does; but credits give back.
func (m *model) chargeAll(all []*asked) {
	for _, a := range all {
		if a.credit {
			a.giveBack(a.cost)
		}
	}
	for _, a := range all {
		if !a.credit {
			a.over = a.count.used+a.cost > uint64(a.requests)
			a.count.used = max(a.count.used, min(a.count.used+a.cost, uint64(a.requests)+1))
		}
		a.left = a.remains()
	}
}

// response returns what the service says.
func (m *model) response(limits []*limit, all []*asked, now time.Time) *rlspb.RateLimitResponse {
	res := &rlspb.RateLimitResponse{OverallCode: rlspb.RateLimitResponse_OK}
	var tightest *asked
	least := uint32(math.MaxUint32)
	var retry time.Duration
	for i, a := range all {
		s := &rlspb.RateLimitResponse_DescriptorStatus{Code: rlspb.RateLimitResponse_OK}
		res.Statuses = append(res.Statuses, s)
		if limits[i] != nil && limits[i].unlimited {
			s.LimitRemaining = math.MaxUint32
		}
		if a == nil {
			continue
		}
		s.CurrentLimit = &rlspb.RateLimitResponse_RateLimit{RequestsPerUnit: a.requests, Unit: a.unit}
		if a.rule != nil {
			s.CurrentLimit.Name = a.rule.name
		}
		if a.multiple > 1 {
			s.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(a.multiple)
		}
		end := a.window(now).Add(a.period())
		s.DurationUntilReset = durationpb.New(end.Sub(now))
		if s.LimitRemaining = uint32(a.left); a.over {
			s.LimitRemaining = 0
		}
		if s.LimitRemaining < least {
			tightest, least = a, s.LimitRemaining
		}
		if !a.over || a.shadow {
			continue
		}
		if a.quota || m.plan.quota {
			continue
		}
		s.Code = rlspb.RateLimitResponse_OVER_LIMIT
		tightest, least = a, 0
		res.OverallCode = rlspb.RateLimitResponse_OVER_LIMIT
		if a.requests > 0 && a.cost <= uint64(a.requests) {
			retry = max(retry, end.Sub(now))
		}
	}
	if m.plan.shadow {
		res.OverallCode = rlspb.RateLimitResponse_OK
	}
	if m.plan.headers && tightest != nil {
		add := func(name string, n int64) {
			res.ResponseHeadersToAdd = append(res.ResponseHeadersToAdd,
				&corepb.HeaderValue{Key: name, Value: strconv.FormatInt(n, 10)})
		}
		add("RateLimit-Limit", int64(tightest.requests))
		add("RateLimit-Remaining", int64(least))
		add("RateLimit-Reset", ceil(tightest.window(now).Add(tightest.period()).Sub(now)))
		if res.GetOverallCode() == rlspb.RateLimitResponse_OVER_LIMIT && retry > 0 {
			add("Retry-After", ceil(retry))
		}
	}
	return res
}

// ceil returns whole seconds.
func ceil(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// server starts a service for a plan. It is closed by the caller.
func server(store core.Store, p *plan) (*envoyrls.Server, error) {
	c := envoyrls.Config{ChargeAll: p.chargeAll, Shadow: p.shadow, Quota: p.quota, Log: slog.New(slog.DiscardHandler)}
	if p.headers {
		c.Headers = envoyrls.Headers{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}
	}
	s, err := envoyrls.New(store, c)
	if err != nil {
		return nil, err
	}
	return s, s.Load(filesOf(p.documents()...)...)
}

// differs makes the requests of a plan, and returns the first answer that is not that of the model.
// settle is called before each request: it lets time pass and returns the time, once what was refused was given back.
func differs(
	ctx context.Context, store core.Store, p *plan, settle func(refused bool, after time.Duration) time.Time,
) (diff string) {
	s, err := server(store, p)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = s.Close() }() // on a busy machine not all has been given back
	_, together := store.(core.ManyStore)
	m := &model{plan: p, counts: map[string]*count{}, together: together}
	for i, step := range p.steps {
		now := settle(m.refused, step.after)
		want := m.answer(step.request, now)
		got, err := s.ShouldRateLimit(ctx, step.request)
		if err != nil {
			return fmt.Sprintf("request %d: %v", i, err)
		}
		if p.timeless {
			withoutTimes(want)
			withoutTimes(got)
		}
		if !proto.Equal(want, got) {
			return fmt.Sprintf("request %d at %v:\nmodel:   %v\nservice: %v", i, now.UTC(), prototext.Format(want), prototext.Format(got))
		}
	}
	return ""
}

// withoutTimes leaves out what changes while a request is under way.
func withoutTimes(res *rlspb.RateLimitResponse) {
	for _, s := range res.GetStatuses() {
		s.DurationUntilReset = nil
	}
	for _, h := range res.GetResponseHeadersToAdd() {
		if h.GetKey() == "RateLimit-Reset" || h.GetKey() == "Retry-After" {
			h.Value = ""
		}
	}
}

var (
	modelSeed = flag.Uint64("model.seed", 0, "the seed of the random plans; 0 takes a new one")
	modelRuns = flag.Int("model.plans", 1000, "the number of random plans, of 100 requests each")
)

// check runs plans, and fails with a small one that is not answered as the model answers.
func check(t *testing.T, plans, requests int, differs func(*plan) string) {
	t.Helper()
	if testing.Short() { // one goroutine asks, so that the race detector finds nothing here and takes ten times as long
		plans = max(1, plans/50)
	}
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i := range plans {
		p := newPlan(rand.New(rand.NewPCG(seed, uint64(i))), requests)
		if differs(p) == "" {
			continue
		}
		p = smallest(p, func(p *plan) bool { return differs(p) != "" })
		t.Fatalf("plan %d of -model.seed %d:\n%v\n%s", i, seed, p, differs(p))
	}
}

// The service answers as the model does: every status, limit, number and header.
func TestModel(t *testing.T) {
	t.Parallel()
	check(t, *modelRuns, 100, func(p *plan) (diff string) {
		synctest.Test(t, func(t *testing.T) {
			store, err := core.NewMemory(core.MemoryOptions{MaxKeys: 1000}) // which are swept soon
			require.NoError(t, err)
			diff = differs(t.Context(), store, p, func(_ bool, d time.Duration) time.Time {
				synctest.Wait() // for what is given back
				<-time.After(d)
				return time.Now()
			})
		})
		return diff
	})
}

// clocked is a store in Redis with a clock that the test sets. It counts what is to be given back.
type clocked struct {
	*redisstore.Store
	now   int64 // in microseconds since 1970
	taken atomic.Int64
}

func (c *clocked) note(t core.Take, res core.Result) {
	if !t.AtMost {
		c.taken.Add(res.Taken)
	}
}

func (c *clocked) Take(ctx context.Context, t core.Take) (core.Result, error) {
	t.Now = c.now
	res, err := c.Store.Take(ctx, t)
	c.note(t, res)
	return res, err
}

func (c *clocked) TakeMany(ctx context.Context, takes []core.Take) ([]core.Result, error) {
	takes = slices.Clone(takes)
	for i := range takes {
		takes[i].Now = c.now
	}
	all, err := c.Store.TakeMany(ctx, takes)
	for i := range all {
		c.note(takes[i], all[i])
	}
	return all, err
}

func (c *clocked) Recall(t core.Take) (core.Result, bool) {
	t.Now = c.now
	return c.Store.Recall(t)
}

func (c *clocked) Refund(ctx context.Context, refunds []core.Refund) error {
	refunds = slices.Clone(refunds)
	for i := range refunds {
		refunds[i].Now = c.now
	}
	err := c.Store.Refund(ctx, refunds)
	for i, r := range refunds {
		one := err
		if some, ok := errors.AsType[*core.BatchError](err); ok {
			one = some.Errs[i]
		}
		var failed *core.StoreError
		again := errors.As(one, &failed) && !failed.MaybeExecuted // as happens on a busy machine
		if !r.Credit && !again {
			c.taken.Add(-r.Units)
		}
	}
	return err
}

// On Redis, too: by a clock that the test sets, for which nothing is remembered; and by that of Redis, so that refusals
// are answered from memory, with limits whose window does not end meanwhile.
func TestModelOnRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(patient(redisstore.ClientOptions(redistest.Single(t).Addr())).Simple())
	t.Cleanup(func() { _ = rdb.Close() })
	plans := 0
	run := func(t *testing.T, p *plan, clock *time.Time) (diff string, remembered uint64) {
		plans++
		p.forRedis()
		store, err := redisstore.New(rdb, redisstore.Options{Deadline: patience, Prefix: "plan" + strconv.Itoa(plans)})
		require.NoError(t, err)
		c := &clocked{Store: store}
		diff = differs(t.Context(), c, p, func(refused bool, d time.Duration) time.Time {
			if refused {
				require.Eventually(t, func() bool { return c.taken.Load() == 0 }, patience, 50*time.Microsecond)
			}
			c.taken.Store(0)
			if clock == nil {
				return time.Now()
			}
			*clock = clock.Add(d)
			c.now = clock.UnixMicro()
			return *clock
		})
		return diff, store.Stats().DenyHits
	}
	check(t, *modelRuns/10, 100, func(p *plan) string {
		now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
		diff, _ := run(t, p, &now)
		return diff
	})
	var remembered uint64
	check(t, *modelRuns/20, 100, func(p *plan) string {
		p.yearly()
		diff, n := run(t, p, nil)
		remembered += n
		return diff
	})
	require.Positive(t, remembered)
}

func patient(o *redis.UniversalOptions) *redis.UniversalOptions {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patience, patience, patience, patience
	return o
}
