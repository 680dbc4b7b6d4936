package page

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// number returns n with a space between thousands: "12 000". The space does not break.
func number[T ~int | ~int64 | ~uint64](n T) string {
	text := strconv.FormatInt(int64(n), 10)
	var b strings.Builder
	for i, digit := range text {
		if left := len(text) - i; i > 0 && left%3 == 0 && text[i-1] != '-' && len(text) > 4 {
			b.WriteString("\u202f")
		}
		b.WriteRune(digit)
	}
	return b.String()
}

// count returns a number of things: "1 process", "3 processes".
func count[T ~int | ~int64 | ~uint64](n T, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// span returns a time as people say it, in its largest unit that is not zero: "45 s", "3 min", "5 h", "2 days".
func span(d time.Duration) string {
	switch {
	case d < 0:
		return span(-d)
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatInt(int64(d/time.Second), 10) + " s"
	case d < time.Hour:
		return strconv.FormatInt(int64(d/time.Minute), 10) + " min"
	case d < 48*time.Hour:
		return strconv.FormatInt(int64(d/time.Hour), 10) + " h"
	}
	return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + " days"
}

// ago returns how long before now a time was, or how long after it.
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "never"
	case d >= time.Minute:
		return span(d) + " ago"
	case d > -time.Second:
		return "just now"
	case d <= -2*time.Minute: // what somebody has just let end in a day ends "in 24 h", and not in 23
		return "in " + span(-d+30*time.Second)
	default:
		return "in " + span(-d)
	}
}

// stamp returns a time with its zone, to the minute.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// joined returns "a", "a and b", or "a, b and c".
func joined(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// cut returns a text of at most n characters.
func cut(n int, text string) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}

// compact returns a number in few characters: "950", "12k", "3.4M".
func compact(n float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= unit.size {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", n/unit.size), ".0") + unit.name
		}
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}
