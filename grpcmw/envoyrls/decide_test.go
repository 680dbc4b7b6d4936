package envoyrls_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/grpcmw/envoyrls"
	"github.com/weir-go/weir/internal/redistest"
)

// An exchange is a request and its answer, as line writes it.
type exchange struct {
	ask  *rlspb.RateLimitRequest
	want string
}

// runSteps runs steps one after the other, in the process and on Redis.
func runSteps(t *testing.T, c envoyrls.Config, file string, steps []exchange) {
	t.Helper()
	for name, store := range map[string]func(testing.TB) core.Store{
		"memory": func(t testing.TB) core.Store { return memory(t) },
		"redis": func(t testing.TB) core.Store {
			s, err := redisstore.New(redistest.Single(t).Client(t), redisstore.Options{Deadline: 5 * time.Second})
			require.NoError(t, err)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServerOn(t, store(t), c, file)
			for i, step := range steps {
				require.Equal(t, step.want, ask(t, s, step.ask), "step %d", i+1)
				settle(t, s)
			}
		})
	}
}

// settle waits until all is given back.
func settle(t testing.TB, s *envoyrls.Server) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Close() == nil }, time.Minute, time.Millisecond)
}

// A request is charged as a whole or not at all, but for what was spent already.
func TestCharges(t *testing.T) {
	runSteps(t, envoyrls.Config{}, basic, []exchange{
		{request(of("user=1"), of("tenant=1")), "OK: OK 2/3, OK 4/5"},
		{cost(3, of("user=1"), of("tenant=1")), "OVER_LIMIT: OVER_LIMIT 0/3, OK 4/5"},
		{request(of("user=1", hits(0)), of("tenant=1", hits(0))), "OK: OK 2/3, OK 4/5"},
		{request(of("tenant=1", hits(4)), of("user=1")), "OK: OK 0/5, OK 1/3"},
		{request(of("tenant=1", hits(0)), of("user=1")), "OVER_LIMIT: OVER_LIMIT 0/5, OK 1/3"},
		{request(of("user=1", hits(9)), of("user=2")), "OVER_LIMIT: OVER_LIMIT 0/3, OK 3/3"},
		{request(of("user=1", hits(2), negative), of("tenant=1", negative)), "OK: OK 2/3, OK 1/5"},
		{request(of("user=1", hits(9), negative), of("tenant=1", negative)), "OK: OK 3/3, OK 2/5"},
		{request(of("free=1"), of("nobody=1"), of("user=1")), "OK: OK 4294967295, OK 0, OK 2/3"},
		{request(of("closed=1"), of("user=1")), "OVER_LIMIT: OVER_LIMIT 0/0, OK 2/3"},
		{request(of("closed=1", hits(0)), of("user=1", hits(1)), of("tenant=1")), "OVER_LIMIT: OVER_LIMIT 0/0, OK 1/3, OK 2/5"},
		{request(of("closed=1", negative)), "OK: OK 0/0"},
		{&rlspb.RateLimitRequest{Domain: "elsewhere", Descriptors: []*extpb.RateLimitDescriptor{of("user=1")}}, "OK: OK 0"},
	})
}

const modes = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 3}
  - key: tried
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: quota
    quota_mode: true
    rate_limit: {unit: year, requests_per_unit: 2}
`

// What a rule in shadow or quota mode refuses passes, and nothing is given back for it. What it would have been charged
// comes back if another one refuses.
func TestTrials(t *testing.T) {
	runSteps(t, envoyrls.Config{}, modes, []exchange{
		{request(of("tried=1"), of("quota=1"), of("user=1")), "OK: OK 1/2, OK 1/2, OK 2/3"},
		{cost(2, of("tried=1"), of("quota=1"), of("user=1")), "OK: OK 0/2, OK 0/2, OK 0/3"},
		{request(of("tried=1"), of("quota=1"), of("user=1")), "OVER_LIMIT: OK 1/2, OK 1/2, OVER_LIMIT 0/3"},
		{request(of("tried=1", hits(5)), of("user=2")), "OK: OK 0/2, OK 2/3"},
		{request(of("tried=1"), of("quota=1")), "OK: OK 0/2, OK 0/2"},
	})

	s := newServer(t, envoyrls.Config{Shadow: true}, basic)
	require.Equal(t, "OK: OVER_LIMIT 0/3, OK 1/5", ask(t, s, cost(4, of("user=1"), of("tenant=1"))))
	require.Equal(t, "OK: OK 2/3, OK 0/5", ask(t, s, request(of("user=1"), of("tenant=1"))))

	s = newServer(t, envoyrls.Config{Quota: true}, basic)
	require.Equal(t, "OK: OK 0/3, OK 1/5", ask(t, s, cost(4, of("user=1"), of("tenant=1"))))
	require.Equal(t, "OK: OK 0/0, OK 0/5", ask(t, s, request(of("closed=1"), of("tenant=1"))))
}

// With ChargeAll the answers are those of counters that have no bound, which each request raises.
func TestChargeAll(t *testing.T) {
	runSteps(t, envoyrls.Config{ChargeAll: true}, basic, []exchange{
		{cost(4, of("user=1"), of("tenant=1")), "OVER_LIMIT: OVER_LIMIT 0/3, OK 1/5"},
		{request(of("user=1"), of("tenant=1")), "OVER_LIMIT: OVER_LIMIT 0/3, OK 0/5"},
		{request(of("tenant=1", hits(0))), "OK: OK 0/5"}, // just used up
		{request(of("tenant=1")), "OVER_LIMIT: OVER_LIMIT 0/5"},
		{request(of("tenant=1", hits(0))), "OVER_LIMIT: OVER_LIMIT 0/5"},
		{request(of("closed=1", hits(0))), "OK: OK 0/0"},
		{request(of("closed=1")), "OVER_LIMIT: OVER_LIMIT 0/0"},
		{request(of("closed=1", hits(0))), "OVER_LIMIT: OVER_LIMIT 0/0"},
		{request(limited(4294967295, typepb.RateLimitUnit_YEAR, 0)), "OK: OK 4294967294/4294967295"},
		{request(limited(2, typepb.RateLimitUnit_MONTH, 0, hits(2))), "OK: OK 0/2"},
		{request(limited(2, typepb.RateLimitUnit_MONTH, 0, hits(2))), "OVER_LIMIT: OVER_LIMIT 0/2"},
	})
}

func cost(n uint32, descriptors ...*extpb.RateLimitDescriptor) *rlspb.RateLimitRequest {
	r := request(descriptors...)
	r.HitsAddend = n
	return r
}

// limited is a descriptor with a limit of its own.
func limited(n uint32, unit typepb.RateLimitUnit, multiplier uint32, with ...func(*extpb.RateLimitDescriptor)) *extpb.RateLimitDescriptor {
	d := of("user=1", with...)
	d.Limit = &extpb.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	if multiplier > 0 {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
	}
	return d
}

// An override counts by descriptor and period, whatever its numbers are.
func TestOverrides(t *testing.T) {
	runSteps(t, envoyrls.Config{}, basic, []exchange{
		{request(of("user=1"), limited(2, typepb.RateLimitUnit_YEAR, 0)), "OK: OK 2/3, OK 1/2"},
		{request(limited(9, typepb.RateLimitUnit_YEAR, 0)), "OK: OK 7/9"},
		{request(limited(9, typepb.RateLimitUnit_YEAR, 1)), "OK: OK 6/9"},
		{request(limited(2, typepb.RateLimitUnit_YEAR, 0)), "OVER_LIMIT: OVER_LIMIT 0/2"},
		{request(limited(9, typepb.RateLimitUnit_DAY, 2)), "OK: OK 8/9"},
		{request(limited(9, 7, 0)), "OK: OK 8/9"}, // a week
		{request(limited(0, typepb.RateLimitUnit_YEAR, 0)), "OVER_LIMIT: OVER_LIMIT 0/0"},
		{request(limited(0, typepb.RateLimitUnit_YEAR, 0, negative)), "OK: OK 0/0"}, // of what the others have charged
		{request(limited(9, typepb.RateLimitUnit_YEAR, 0)), "OK: OK 6/9"},
		{request(limited(4294967295, typepb.RateLimitUnit_YEAR, 0)), "OK: OK 4294967291/4294967295"},
		{request(of("user=1", hits(0))), "OK: OK 2/3"},
	})
	s := newServer(t, envoyrls.Config{}, basic)
	res, err := s.ShouldRateLimit(t.Context(), request(limited(9, typepb.RateLimitUnit_MINUTE, 15)))
	require.NoError(t, err)
	require.Equal(t, uint32(15), res.GetStatuses()[0].GetCurrentLimit().GetUnitMultiplier().GetValue())

	// It needs a domain, as with the other service, but no rule.
	d := limited(1, typepb.RateLimitUnit_YEAR, 0)
	d.Entries[0].Key = "nobody"
	require.Equal(t, "OK: OK 0/1", ask(t, s, request(d)))
	require.Equal(t, "OK: OK 0", ask(t, s, &rlspb.RateLimitRequest{Domain: "elsewhere", Descriptors: request(d).Descriptors}))
}

func TestRequestsWithMistakes(t *testing.T) {
	s := newServer(t, envoyrls.Config{}, basic)
	long := strings.Repeat("x", 4096)
	many := make([]*extpb.RateLimitDescriptor, 65)
	for i := range many {
		many[i] = of("user=1")
	}
	wide := make([]*extpb.RateLimitDescriptor, 64)
	for i := range wide {
		wide[i] = of(strings.TrimSuffix(strings.Repeat("k="+long[:1024]+",", 16), ","))
	}
	for name, test := range map[string]struct {
		ask  *rlspb.RateLimitRequest
		code codes.Code
		text string
	}{
		"no domain":         {&rlspb.RateLimitRequest{Descriptors: many[:1]}, codes.Unknown, "rate limit domain must not be empty"},
		"no descriptors":    {request(), codes.Unknown, "rate limit descriptor list must not be empty"},
		"65 descriptors":    {request(many...), codes.InvalidArgument, "the request has 65 descriptors; give at most 64"},
		"17 entries":        {request(of("user=1"), of(strings.Repeat("k=v,", 16)+"k=v")), codes.InvalidArgument, "descriptor 2 has 17 entries; give at most 16"},
		"a long entry":      {request(of("user=" + long)), codes.InvalidArgument, "an entry of descriptor 1 has 4100 bytes; give at most 4096 for its key and value"},
		"a long domain":     {&rlspb.RateLimitRequest{Domain: long + "x", Descriptors: many[:1]}, codes.InvalidArgument, "the domain has 4097 bytes; give at most 4096"},
		"all too long":      {request(wide...), codes.InvalidArgument, "the entries of the request have 1049600 bytes; give at most 1048576"},
		"no unit":           {request(limited(1, typepb.RateLimitUnit_UNKNOWN, 0)), codes.InvalidArgument, "the limit of descriptor 1 has the unit UNKNOWN; give second, minute, hour, day, week, month or year"},
		"a unit of others":  {request(limited(1, 99, 0)), codes.InvalidArgument, "the limit of descriptor 1 has the unit 99; give second, minute, hour, day, week, month or year"},
		"more than a year":  {request(of("user=1"), limited(1, typepb.RateLimitUnit_YEAR, 2)), codes.InvalidArgument, "the limit of descriptor 2 has 2 times a year; give at most 1"},
		"2^32-1 multiplied": {request(limited(1, typepb.RateLimitUnit_SECOND, 4294967295)), codes.InvalidArgument, "the limit of descriptor 1 has 4294967295 times a second; give at most 31622400"},
	} {
		_, err := s.ShouldRateLimit(t.Context(), test.ask)
		require.Equal(t, status.New(test.code, test.text).String(), status.Convert(err).String(), name)
	}
	wide = wide[:63]
	require.Contains(t, ask(t, s, request(wide...)), "OK: OK 0, OK 0")
	require.Contains(t, ask(t, s, request(many[:64]...)), "OVER_LIMIT: ", "64 units of 3")
	require.Equal(t, "OK: OK 2/3", ask(t, s, request(of("user=1"))))
	require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/3", ask(t, s, request(of("user=1", hits(1<<64-1)))))
}

func TestReplaced(t *testing.T) {
	runSteps(t, envoyrls.Config{}, `
domain: edge
descriptors:
  - key: all
    rate_limit: {unit: year, requests_per_unit: 1, name: everybody}
  - key: gold
    rate_limit: {unit: year, requests_per_unit: 5, name: gold, replaces: [{name: everybody}]}
  - key: staff
    rate_limit: {unlimited: true, replaces: [{name: gold}]}
`, []exchange{
		{request(of("all=1"), of("gold=1")), "OK: OK 0, OK 4/5"},
		{request(of("all=1")), "OK: OK 0/1"},
		{request(of("all=1"), of("gold=1"), of("staff=1")), "OK: OK 0, OK 0, OK 4294967295"}, // the replaced one replaces as well
		{request(of("all=1"), of("staff=1")), "OVER_LIMIT: OVER_LIMIT 0/1, OK 4294967295"},
	})
}

// Windows are those of the other service, and the time until they end is exact.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, envoyrls.Config{Headers: envoyrls.Headers{Limit: "L", Remaining: "R", Reset: "S"}}, `
domain: edge
descriptors:
  - key: second
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: quarter
    rate_limit: {unit: minute, unit_multiplier: 15, requests_per_unit: 2}
  - key: month
    rate_limit: {unit: month, requests_per_unit: 2}
  - key: smooth
    rate_limit: {policy: 2/1m}
  - key: two
    rate_limit: {policy: "2/1s fixed-window aligned, 3/1h fixed-window aligned"}
  - key: odd
    rate_limit: {policy: 2/1500ms fixed-window aligned}
  - key: closed
    rate_limit: {unit: minute, requests_per_unit: 0}
`)
		<-time.After(123*time.Second + 456*time.Millisecond) // after midnight of a day of which 30 are a window
		answer := func(r *rlspb.RateLimitRequest) string {
			res, err := s.ShouldRateLimit(t.Context(), r)
			require.NoError(t, err)
			text := line(res)
			for _, st := range res.GetStatuses() {
				text += " " + st.GetDurationUntilReset().AsDuration().String()
			}
			for _, h := range res.GetResponseHeadersToAdd() {
				text += fmt.Sprintf(" %s=%s", h.GetKey(), h.GetValue())
			}
			return text
		}
		now := time.Now()
		day := 24 * time.Hour
		month := 30*day - time.Duration(now.UnixNano())%(30*day)
		for i, step := range []struct {
			ask  *rlspb.RateLimitRequest
			want string
		}{
			{request(of("second=1", hits(0))), "OK: OK 2/2 544ms L=2 R=2 S=1"},
			{request(of("second=1")), "OK: OK 1/2 544ms L=2 R=1 S=1"},
			{cost(2, of("quarter=1")), "OK: OK 0/2 12m56.544s L=2 R=0 S=777"},
			{request(of("quarter=1")), "OVER_LIMIT: OVER_LIMIT 0/2 12m56.544s L=2 R=0 S=777 Retry-After=777"},
			{cost(3, of("second=1")), "OVER_LIMIT: OVER_LIMIT 0/2 544ms L=2 R=0 S=1"}, // it never fits
			{request(of("month=1")), fmt.Sprintf("OK: OK 1/2 %v L=2 R=1 S=%d", month, (month+time.Second-1)/time.Second)},
			{cost(2, of("smooth=1")), "OK: OK 0/2 1m0s L=2 R=0 S=60"},
			{request(of("smooth=1")), "OVER_LIMIT: OVER_LIMIT 0/2 30s L=2 R=0 S=30 Retry-After=30"},
			{request(of("smooth=2", hits(0))), "OK: OK 2/2 0s L=2 R=2 S=0"},
			{request(of("nobody=1")), "OK: OK 0 0s"},
			{request(of("month=2"), of("second=1")), fmt.Sprintf("OK: OK 1/2, OK 0/2 %v 544ms L=2 R=0 S=1", month)},
			{request(of("odd=1")), "OK: OK 1/2 1.044s L=2 R=1 S=2"},
			{request(of("closed=1")), "OVER_LIMIT: OVER_LIMIT 0/0 56.544s L=0 R=0 S=57"},
			{cost(2, of("two=1")), "OK: OK 0/2 544ms L=2 R=0 S=1"},
		} {
			require.Equal(t, step.want, answer(step.ask), "step %d", i+1)
		}
		<-time.After(544*time.Millisecond - time.Microsecond)
		require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/2 1µs L=2 R=0 S=1 Retry-After=1", answer(request(of("second=1"))))
		<-time.After(time.Microsecond)
		require.Equal(t, "OK: OK 1/2 1s L=2 R=1 S=1", answer(request(of("second=1"))))
		require.Equal(t, "OK: OK 0/3 57m56s L=3 R=0 S=3476", answer(request(of("two=1"))), "the hour is tighter")
	})
}

// A credit gives back units that were taken too much, whoever has taken them.
func TestCredit(t *testing.T) {
	s := newServer(t, envoyrls.Config{}, basic)
	require.Equal(t, "OK: OK 3/3", ask(t, s, request(of("user=1", negative))), "nothing is in use")
	require.Equal(t, "OK: OK 0/3", ask(t, s, request(of("user=1", hits(3)))))
	require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/3", ask(t, s, request(of("user=1"))))
	require.Equal(t, "OK: OK 2/3, OK 4/5", ask(t, s, request(of("user=1", hits(2), negative), of("tenant=1"))))
	require.Equal(t, "OK: OK 1/3", ask(t, s, request(of("user=1"))))
}

// meeting is a store in which refunds wait for each other.
type meeting struct {
	core.Store

	all sync.WaitGroup
}

func (m *meeting) Refund(ctx context.Context, refunds []core.Refund) error {
	m.all.Done()
	m.all.Wait()
	return m.Store.Refund(ctx, refunds)
}

// The credits of a request travel together: one after the other, 64 would take a slow store a second.
func TestCreditsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &meeting{Store: memory(t)}
		s := newServerOn(t, store, envoyrls.Config{}, basic)
		r := &rlspb.RateLimitRequest{Domain: "edge"}
		for i := range 64 {
			r.Descriptors = append(r.Descriptors, of(fmt.Sprintf("user=%d", i), hits(3)))
		}
		require.NotContains(t, ask(t, s, r), "3/3")
		for _, d := range r.GetDescriptors() {
			d.IsNegativeHits = true
		}
		store.all.Add(64)
		require.Equal(t, "OK: "+strings.Repeat("OK 3/3, ", 63)+"OK 3/3", ask(t, s, r))
	})
}

func TestReset(t *testing.T) {
	s := newServer(t, envoyrls.Config{}, basic)
	over := limited(1, typepb.RateLimitUnit_YEAR, 0)
	require.Equal(t, "OK: OK 0/3, OK 0/1", ask(t, s, request(of("user=1", hits(3)), over)))
	require.NoError(t, s.Reset(t.Context(), "edge", of("user=1")))
	require.NoError(t, s.Reset(t.Context(), "edge", over))
	require.Equal(t, "OK: OK 2/3, OK 0/1", ask(t, s, request(of("user=1"), over)))
	for _, d := range []*extpb.RateLimitDescriptor{of("nobody=1"), of("free=1"), of("closed=1")} {
		require.EqualError(t, s.Reset(t.Context(), "edge", d), `envoyrls: nothing is counted for the descriptor in the domain "edge"; give one that has a limit`)
	}
	require.Error(t, s.Reset(t.Context(), "", of("user=1")))
}
