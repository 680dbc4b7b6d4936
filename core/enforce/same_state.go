package enforce

import (
	"slices"
	"time"

	"github.com/weir-go/weir/core"
)

// sharesState reports whether the key of one name has one state under both, in the store and in the fallback.
func sharesState(p, q core.Policy) bool {
	// A share may be of another number of processes.
	return shape(p) == shape(q) && shape(p.Local()) == shape(q.Local())
}

func shape(p core.Policy) string { return p.Spec().Shape() }

// hasRates reports whether p has limits that are not permits.
func hasRates(p core.Policy) bool { return shape(p) != "" }

// sameForm reports whether two policies differ in nothing but numbers.
func sameForm(p, q core.Policy) bool {
	return slices.EqualFunc(p.Limits(), q.Limits(), func(l, m core.Limit) bool {
		return l.Algorithm == m.Algorithm && l.Buckets == m.Buckets && (l.Align == m.Align || onCalendar(l) && onCalendar(m))
	})
}

func onCalendar(l core.Limit) bool { return l.Align != "" && l.Align != "epoch" }

// weighs returns the time until nothing that was taken weighs any more, in any of the limits.
func weighs(res *core.Result) (longest time.Duration) {
	for i := range core.MaxLimits {
		longest = max(longest, res.Each(i).ResetAfter)
	}
	return longest
}
