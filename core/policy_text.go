package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// String returns the policy's text, which [Parse] reads back to a policy that says the same,
// or "" for the zero Policy. The limits stand in the order of [Policy.Limits].
func (p Policy) String() string {
	if p.p == nil {
		return ""
	}
	var b []byte
	if p.p.name != "" {
		b = append(b, p.p.name...)
		b = append(b, ": "...)
	}
	for i, l := range p.p.limits {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = l.appendText(b)
	}
	return string(p.p.options.appendText(b))
}

// MarshalText implements encoding.TextMarshaler, for policies in configuration
// files. The zero Policy is the empty text.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with [Parse]. The empty text
// is an error: leave the policy out where none is meant.
func (p *Policy) UnmarshalText(text []byte) error {
	q, err := Parse(string(text))
	if err != nil {
		return err
	}
	*p = q
	return nil
}

// appendText appends what is not the default.
func (o PolicyOptions) appendText(b []byte) []byte {
	if o.Wait > 0 {
		b = append(b, "; wait "...)
		b = append(b, periodText(o.Wait)...)
	}
	if o.Fail != FailLocal || o.Processes > 0 {
		b = append(b, "; fail "...)
		b = append(b, o.Fail.String()...)
	}
	if o.Processes > 0 {
		b = append(b, " 1/"...)
		b = strconv.AppendInt(b, int64(o.Processes), 10)
	}
	if o.Shadow {
		b = append(b, "; shadow"...)
	}
	if o.Epoch > 0 {
		b = append(b, "; epoch "...)
		b = strconv.AppendInt(b, int64(o.Epoch), 10)
	}
	return b
}

func (l Limit) appendText(b []byte) []byte {
	if l.Algorithm == Concurrent {
		b = strconv.AppendInt(b, l.Burst, 10)
		b = append(b, ' ')
		b = append(b, concurrentWord...)
		if l.Lease != 0 && l.Lease != defaultLease {
			b = append(b, " lease "...)
			b = append(b, periodText(l.Lease)...)
		}
		return b
	}
	unit, zone, calendar := strings.Cut(l.Align, " ")
	calendar = calendar && zone != "" && algo.IsCalendarUnit(unit)
	b = strconv.AppendInt(b, l.Rate, 10)
	b = append(b, '/')
	if calendar && unit == "month" {
		b = append(b, "1mo"...)
	} else {
		b = append(b, periodText(l.Period)...)
	}
	if l.Algorithm != GCRA {
		b = append(b, ' ')
		b = append(b, l.Algorithm.String()...)
	}
	if l.Burst != 0 && l.Burst != l.Rate {
		b = append(b, " burst "...)
		b = strconv.AppendInt(b, l.Burst, 10)
	}
	if l.Debt != 0 {
		b = append(b, " debt "...)
		b = strconv.AppendInt(b, l.Debt, 10)
	}
	if l.Buckets != 0 && l.Buckets != defaultBuckets {
		b = append(b, " buckets "...)
		b = strconv.AppendInt(b, int64(l.Buckets), 10)
	}
	switch {
	case calendar:
		b = append(b, " calendar "...)
		b = append(b, zone...)
	case l.Align == algo.AlignEpoch:
		b = append(b, " aligned"...)
	case l.Align != "": // a mistake, for its error
		b = fmt.Appendf(b, " calendar %.80q", l.Align)
	}
	return b
}

// periodUnits are the units of a period, the longest first.
var periodUnits = []struct {
	name string
	d    time.Duration
}{
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
	{"us", time.Microsecond},
}

// periodUnit returns the index of a unit, or -1.
func periodUnit(name string) int {
	return slices.Index(unitNames(), name)
}

func unitNames() []string {
	names := make([]string, len(periodUnits))
	for i, u := range periodUnits {
		names[i] = u.name
	}
	return names
}

// periodText returns d as the grammar has it. Durations that no policy can have are written in the same way, for
// errors: a sign, nanoseconds, and "0s".
func periodText(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	var b []byte
	rest := uint64(d)
	if d < 0 {
		b, rest = append(b, '-'), -rest
	}
	for _, u := range periodUnits {
		if n := rest / uint64(u.d); n > 0 {
			b = strconv.AppendUint(b, n, 10)
			b = append(b, u.name...)
			rest %= uint64(u.d)
		}
	}
	if rest > 0 {
		b = strconv.AppendUint(b, rest, 10)
		b = append(b, "ns"...)
	}
	return string(b)
}

// oneOf lists words for an error: "a", "b" or "c".
func oneOf(words []string) string {
	var b strings.Builder
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(word))
	}
	return b.String()
}
