package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// leasesEnd is about a holder that has crashed.
func leasesEnd(s *permits) {
	p := permitPolicy(2, time.Second)
	s.acquire(s.permit(p, "a", 2, 0))
	require.Equal(s, core.Refused, s.acquire(s.permit(p, "b", 1, second-1)).Outcome)
	s.expect(core.Result{Outcome: core.Admitted, Taken: 1, Limit: 2, Remaining: 1, ResetAfter: time.Second}, s.acquire(s.permit(p, "b", 1, second)), second)
	s.expect(core.Result{Outcome: core.Never, Limit: 2, Remaining: 2}, s.acquire(s.permit(p, "c", 3, 5*second)), 5*second)
}

func renewed(s *permits) {
	p := permitPolicy(2, time.Second)
	a, b := s.permit(p, "a", 1, 0), s.permit(p, "b", 1, 0)
	at := func(p core.Permit, at int64) core.Permit { p.Now = Epoch + at; return p }
	require.Empty(s, s.renew())
	s.acquire(a)
	s.acquire(b)
	require.Empty(s, s.renew(at(a, 600_000)))
	require.Equal(s, core.Refused, s.acquire(s.permit(p, "c", 2, 1_500_000)).Outcome, "it was renewed")
	s.acquire(s.permit(p, "c", 1, 1_500_000))
	require.Equal(s, []string{"b"}, s.renew(at(a, 1_500_000), at(b, 1_500_000)), "the place has been given to another")
	require.Empty(s, s.renew(at(a, 1_500_000)), "what is lost takes nothing with it")
	s.release(s.permit(p, "c", 1, 1_500_000))
	require.Empty(s, s.renew(at(b, 1_500_000)), "there is room again")
	require.Equal(s, core.Refused, s.acquire(s.permit(p, "d", 1, 1_500_000)).Outcome)
	require.Empty(s, s.renew(at(b, 3*second), at(a, 3*second)), "all have ended, and nobody came")
	require.Equal(s, core.Refused, s.acquire(s.permit(p, "d", 1, 3*second)).Outcome)

	// It keeps its weight, and where there is room for some, those come first that are
	// named first.
	q := permitPolicy(4, time.Second).Named("renewed")
	s.acquire(s.permit(q, "heavy", 3, 0))
	require.Empty(s, s.renew(s.permit(q, "heavy", 1, 100)))
	require.EqualValues(s, 1, s.acquire(s.permit(q, "x", 2, 100)).Remaining)
	require.Equal(s, []string{"x"}, s.renew(s.permit(q, "y", 1, 200), s.permit(q, "x", 1, 200), s.permit(q, "heavy", 3, 200)))

	// Many permits, of several keys and policies.
	var all []core.Permit
	wide := permitPolicy(300, time.Second).Named("wide")
	for i := range 400 {
		x := s.permit(wide, fmt.Sprint("id", i), 1, 0)
		x.Key += fmt.Sprint(i % 3)
		s.acquire(x)
		all = append(all, at(x, 500))
	}
	narrow := permitPolicy(1, time.Second).Named("narrow")
	s.acquire(s.permit(narrow, "other", 1, 500))
	all = slices.Insert(all, 77, s.permit(narrow, "lost", 1, 500))
	require.Equal(s, []string{"lost"}, s.renew(all...))
}

// permitClockStepsBack is about leases that end too far in the future.
func permitClockStepsBack(s *permits) {
	p := permitPolicy(1, time.Second)
	s.acquire(s.permit(p, "a", 1, hour))
	s.expect(core.Result{Outcome: core.Refused, Limit: 1, RetryAfter: time.Second, ResetAfter: time.Second}, s.acquire(s.permit(p, "b", 1, 0)), 0)
	s.expect(core.Result{Outcome: core.Refused, Limit: 1, RetryAfter: 1 * us, ResetAfter: 1 * us}, s.acquire(s.permit(p, "b", 1, second-1)), second-1)
	require.True(s, s.acquire(s.permit(p, "b", 1, second)).Allowed(), "it was cut, and does not only say so")
	require.Equal(s, []string{"a"}, s.renew(s.permit(p, "a", 1, -hour)))
	require.True(s, s.acquire(s.permit(p, "a", 1, -hour+second)).Allowed())
}

// permitsByStoreClock looks at the present, which tests with a forced clock do not.
func permitsByStoreClock(s *permits) {
	p := permitPolicy(1, time.Hour)
	a := core.Permit{Policy: p, Key: s.key, ID: "a"}
	res := s.acquire(a)
	require.Equal(s, core.AtLimit, res.Outcome)
	require.WithinDuration(s, time.Now(), time.UnixMicro(res.At), 10*time.Second)
	b := a
	b.ID = "b"
	res = s.acquire(b)
	require.Equal(s, core.Refused, res.Outcome)
	require.InDelta(s, time.Hour, res.RetryAfter, float64(10*time.Second))
	require.Empty(s, s.renew(a))
	s.release(a)
	require.Equal(s, core.AtLimit, s.acquire(b).Outcome)
	s.release(b)
}
