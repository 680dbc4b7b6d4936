package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
)

// Explanation describes what would become of a request, and why: enforce.Limiter.Explain returns it. Its String is a
// text for people. In JSON, durations are nanoseconds.
type Explanation struct {
	// Policy is the text of the policy with the numbers that hold for the key, "unlimited", or "blocked".
	Policy string `json:"policy"`
	// Numbers is the place of these numbers: "code", an entry of the Source's Set such as Keys["mail"]["user=7"], "tier"
	// or "given", those of ExplainAs. Revision is that of the Set in force, "" if it has none.
	Numbers  string `json:"numbers"`
	Revision string `json:"revision,omitempty"`
	// Key is the key, and Stored the name under which the store keeps its counts, such as a key of Redis. StoredPermits is
	// that of its permits. They are "" where there are none.
	Key           string `json:"key"`
	Stored        string `json:"stored,omitempty"`
	StoredPermits string `json:"storedPermits,omitempty"`
	// Cost is the number of units that was asked for.
	Cost int64 `json:"cost"`
	// At is the instant for which all this holds, by the clock of the store that decides.
	At time.Time `json:"at"`
	// From is the place of the decision: "store", "deny-cache" (the process remembers that the store has refused),
	// "process" (the store is in the process, or the key is Unlimited or Blocked), "fallback", "open" or "closed" (the
	// policy's fail word, because the store fails).
	From string `json:"from"`
	// Failure is the error of a store that fails, or "".
	Failure string `json:"failure,omitempty"`
	// Outcome is the decision of now, and Result what the caller would get. A request that would wait has a Result.Delay.
	Outcome string      `json:"outcome"`
	Result  core.Result `json:"-"`
	// Shadow reports that the policy is a trial: a Guard lets the request pass whatever the Outcome.
	Shadow bool `json:"shadow,omitempty"`
	// Limits are the limits of the policy in the order of [core.Policy.Limits], permits last. There are none where nothing
	// is counted.
	Limits []Limit `json:"limits,omitempty"`
	// Next are the next five times at which such a request would be admitted if nobody else came and each gave its permit
	// back at once: the first is At if it would be admitted now. There are fewer where the cost can never fit, and none
	// where it is 0 or nothing is counted.
	Next []Turn `json:"next,omitempty"`
	// Permits has the permits that are held. It is nil if the policy has none.
	Permits *Permits `json:"permits,omitempty"`
	// Owed is the units that this process has admitted while the store did not answer, and that the store is charged with
	// after its next decision about the key.
	Owed int64 `json:"owed,omitempty"`
	// Waiting is the number of callers of this process that wait for their turn with the same key and cost.
	Waiting int `json:"waiting,omitempty"`
	// Notes are sentences about what else matters.
	Notes []string `json:"notes,omitempty"`
}

// Limit is one limit in an [Explanation], as it is before the request.
type Limit struct {
	// Limit is the limit's text, such as "10/1s burst 20", in a process's share of the policy the part of the process.
	Limit string `json:"limit"`
	// Used is the number of units, or permits, in use: more than the burst if the key is in debt. Left is the number that
	// would be admitted now.
	Used int64 `json:"used"`
	Left int64 `json:"left"`
	// Refuses reports that this limit refuses the request, and Never that it always will, because the cost is above burst
	// and debt.
	Refuses bool `json:"refuses,omitempty"`
	Never   bool `json:"never,omitempty"`
	// RetryAfter is the time until this limit admits the request, if it Refuses. For permits it is the time until enough
	// leases end, if nobody renews: mostly it comes sooner.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	// Delay is the time that the request would wait for its turn at this limit, if it is admitted.
	Delay time.Duration `json:"delay,omitempty"`
	// ResetAfter is the time until the limit is as if unused.
	ResetAfter time.Duration `json:"resetAfter,omitempty"`
}

// Turn is an admission in the future.
type Turn struct {
	// At is the instant of the admission, by the clock of the store that decides.
	At time.Time `json:"at"`
	// Delay is the time that it waits then, in a LeakyBucket or where it may reserve.
	Delay time.Duration `json:"delay,omitempty"`
}

// Permits describes the permits of a key.
type Permits struct {
	// Held is the number of permits that are held, of Most, and Here the number of those that this process holds.
	Held int64 `json:"held"`
	Most int64 `json:"most"`
	Here int64 `json:"here"`
	// FirstEnds and LastEnds are the ends of the first and of the last of their leases, if nobody renews. They are zero if
	// none is held.
	FirstEnds time.Time `json:"firstEnds,omitzero"`
	LastEnds  time.Time `json:"lastEnds,omitzero"`
}

// String returns the Explanation as lines of text that can be pasted into a ticket.
func (x Explanation) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("policy", "%s", x.Policy)
	of := x.Numbers
	if x.Revision != "" {
		of += ", revision " + x.Revision
	}
	if of != "code" {
		line("numbers", "%s", of)
	}
	line("key", "%q", x.Key)
	for _, name := range []string{x.Stored, x.StoredPermits} {
		if name != "" {
			line("stored", "%s", name)
		}
	}
	line("request", "cost %d, at %s", x.Cost, x.At.UTC().Format(instant))
	answer := x.Result.String()
	if x.Result.Limit == 0 { // nothing is counted
		answer = x.Outcome
		if x.Result.RetryAfter > 0 {
			answer += fmt.Sprintf(", retry in %v", x.Result.RetryAfter)
		}
	}
	line("answer", "%s (%s)", answer, x.From)
	if x.Failure != "" {
		line("failure", "%s", x.Failure)
	}
	if x.Shadow {
		line("trial", "the policy is on trial and refuses nobody")
	}
	for _, l := range x.Limits {
		line("limit", "%s: %s", l.Limit, l)
	}
	if p := x.Permits; p != nil && p.Held > 0 {
		line("permits", "%d of %d held, %d by this process; leases end %s to %s", p.Held, p.Most, p.Here, p.FirstEnds.UTC().Format(instant), p.LastEnds.UTC().Format(instant))
	}
	if x.Waiting > 0 {
		line("waiting", "%d callers of this process", x.Waiting)
	}
	if x.Owed > 0 {
		line("owed", "%d units", x.Owed)
	}
	for i, turn := range x.Next {
		after := "now"
		if d := turn.At.Sub(x.At); d > 0 {
			after = "in " + d.String()
		}
		if turn.Delay > 0 {
			after += ", then waits " + turn.Delay.String()
		}
		name := ""
		if i == 0 {
			name = "next"
		}
		line(name, "%s (%s)", turn.At.UTC().Format(instant), after)
	}
	for _, n := range x.Notes {
		line("note", "%s", n)
	}
	return b.String()
}

// instant is the form of an instant in a text.
const instant = "2006-01-02T15:04:05.000000Z"

// String returns what is used and left, and whether the limit refuses, as in "10 used, 0 left, refuses, admits in 100ms".
func (l Limit) String() string {
	text := fmt.Sprintf("%d used, %d left", l.Used, l.Left)
	switch {
	case l.Never:
		text += ", refuses: the cost can never fit"
	case l.Refuses:
		text += fmt.Sprintf(", refuses, admits in %v", l.RetryAfter)
	case l.Delay > 0:
		text += fmt.Sprintf(", its turn is in %v", l.Delay)
	}
	if l.ResetAfter > 0 {
		text += fmt.Sprintf(", as if unused in %v", l.ResetAfter)
	}
	return text
}
