package page

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/manage"
)

// The pictures are SVG, whose colors are those of the style sheet. Everything in them is a number or a text of this
// file, so that nothing needs to be escaped.

// marks are the signs of levels: they differ in shape as well, for those who see no colors.
var marks = map[string]string{
	"good":   `<circle cx="12" cy="12" r="10" fill="currentColor" opacity=".16"/><path d="M7 12.5l3.4 3.4L17 9" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" stroke-linejoin="round"/>`,
	"accent": `<circle cx="12" cy="12" r="10" fill="currentColor" opacity=".16"/><path d="M7.5 12h9" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round"/>`,
	"warn":   `<path d="M12 2.6L22.4 21H1.6z" fill="currentColor" opacity=".18"/><path d="M12 9v5.2M12 17.4v.2" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round"/>`,
	"bad":    `<path d="M8 2h8l6 6v8l-6 6H8l-6-6V8z" fill="currentColor" opacity=".18"/><path d="M8.5 8.5l7 7M15.5 8.5l-7 7" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round"/>`,
}

// mark returns the sign of a level. It is for the eye: the word stands beside it.
func mark(level string, size int) template.HTML {
	return template.HTML(fmt.Sprintf( //nolint:gosec // constants and a number
		`<svg class="mark %s" width="%d" height="%d" viewBox="0 0 24 24" aria-hidden="true">%s</svg>`,
		map[string]string{"good": "good", "accent": "quiet", "warn": "warn", "bad": "bad"}[level], size, size, marks[level]))
}

// curve draws the last hour by the minute: what was admitted, and on top what was refused.
func curve(points []manage.UsagePoint, now time.Time) template.HTML {
	const minutes, width, height = 60, 240.0, 48.0
	var admitted, refused [minutes]float64
	start := now.Truncate(time.Minute).Add(-minutes * time.Minute)
	highest := 0.0
	var sum, no uint64
	for _, p := range points {
		at := int(p.At.Sub(start) / time.Minute)
		if at < 0 || at >= minutes {
			continue
		}
		admitted[at] += float64(p.Admitted)
		refused[at] += float64(p.Refused)
		sum += p.Admitted
		no += p.Refused
		highest = max(highest, admitted[at]+refused[at])
	}
	if highest == 0 {
		return ""
	}
	area := func(low, high func(int) float64) string {
		var b strings.Builder
		x := func(i int) float64 { return float64(i) * width / (minutes - 1) }
		y := func(n float64) float64 { return height - 2 - n/highest*(height-6) }
		for i := range minutes {
			fmt.Fprintf(&b, "%c%.1f %.1f", "LM"[boolIndex(i == 0)], x(i), y(high(i)))
		}
		for i := minutes - 1; i >= 0; i-- {
			fmt.Fprintf(&b, "L%.1f %.1f", x(i), y(low(i)))
		}
		return b.String() + "Z"
	}
	zero := func(int) float64 { return 0 }
	a := func(i int) float64 { return admitted[i] }
	both := func(i int) float64 { return admitted[i] + refused[i] }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="curve" viewBox="0 0 %g %g" preserveAspectRatio="none" role="img" `+
		`aria-label="The last hour: %s admitted, %s refused, at most %s in a minute.">`,
		width, height, number(sum), number(no), compact(highest))
	fmt.Fprintf(&b, `<path class="axis" d="M0 %g H%g" vector-effect="non-scaling-stroke"/>`, height-1, width)
	if no > 0 {
		fmt.Fprintf(&b, `<path class="refused" d="%s"/>`, area(a, both))
	}
	fmt.Fprintf(&b, `<path class="admitted" d="%s" vector-effect="non-scaling-stroke"/>`, area(zero, a))
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers
}

// spark draws the last hour in few bytes, for a line of a list: steps of two minutes.
func spark(points []manage.UsagePoint, now time.Time) template.HTML {
	const steps, minutes, height = 30, 60, 16
	var admitted, both [steps]uint64
	start := now.Truncate(time.Minute).Add(-minutes * time.Minute)
	var highest, sum, refused uint64
	for _, p := range points {
		at := int(p.At.Sub(start) / (2 * time.Minute))
		if p.At.Before(start) || at >= steps {
			continue
		}
		admitted[at] += p.Admitted
		both[at] += p.Admitted + p.Refused
		highest = max(highest, both[at])
		sum += p.Admitted
		refused += p.Refused
	}
	if highest == 0 {
		return ""
	}
	area := func(counts *[steps]uint64) string {
		var b strings.Builder
		fmt.Fprintf(&b, "M0 %d", height)
		last := uint64(0)
		for i := 0; i < steps; {
			n := i + 1
			tall := (counts[i]*height + highest - 1) / highest
			for n < steps && (counts[n]*height+highest-1)/highest == tall {
				n++
			}
			if tall != last {
				fmt.Fprintf(&b, "V%d", height-tall)
				last = tall
			}
			fmt.Fprintf(&b, "H%d", 2*n)
			i = n
		}
		return b.String() + fmt.Sprintf("V%dZ", height)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 60 16" preserveAspectRatio="none" role="img" `+
		`aria-label="The last hour: %s admitted, %s refused.">`, number(sum), number(refused))
	if refused > 0 {
		fmt.Fprintf(&b, `<path class="refused" d="%s"/>`, area(&both))
	}
	fmt.Fprintf(&b, `<path class="let" d="%s"/></svg>`, area(&admitted))
	return template.HTML(b.String()) //nolint:gosec // numbers
}

func boolIndex(b bool) int {
	if b {
		return 1
	}
	return 0
}

// window draws a picture of a policy: what somebody gets who asks for all there is, from idle on.
func window(pic manage.Picture) template.HTML {
	if len(pic.Points) == 0 || pic.Span <= 0 {
		return ""
	}
	last := pic.Points[len(pic.Points)-1]
	if last.Units == 0 {
		return ""
	}
	const width, height, left, low, top, many = 340.0, 150.0, 42.0, 26.0, 10.0, 40
	highest := float64(last.Units)
	x := func(at time.Duration) float64 { return left + float64(at)/float64(pic.Span)*(width-left-14) }
	y := func(units int64) float64 { return height - low - float64(units)/highest*(height-low-top) }
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", x(0), y(0))
	before, twice := int64(0), int64(0)
	for _, p := range pic.Points {
		if len(pic.Points) < many { // what comes back in a few steps is drawn as steps
			fmt.Fprintf(&path, "L%.1f %.1f", x(p.At), y(before))
		}
		fmt.Fprintf(&path, "L%.1f %.1f", x(p.At), y(p.Units))
		if before = p.Units; p.At <= 2*pic.Period {
			twice = p.Units
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="window" viewBox="0 0 %g %g" role="img" aria-label="Asking for all there is, from idle: %s at once, and %s after %s.">`,
		width, height, compact(float64(pic.Points[0].Units)), compact(float64(twice)), periods(pic.Period, 2))
	for _, n := range ticks(highest) {
		fmt.Fprintf(&b, `<path class="axis" d="M%g %.1fH%g"/><text class="tick-text" x="%g" y="%.1f" text-anchor="end">%s</text>`,
			left, y(int64(n)), width-14, left-8, y(int64(n))+4, compact(n))
	}
	fmt.Fprintf(&b, `<path class="after-area" d="%sL%.1f %.1fZ"/>`, path.String(), x(pic.Span), y(0))
	fmt.Fprintf(&b, `<path class="after" stroke-width="2.2" stroke-linejoin="round" d="%s"/>`, path.String())
	for i := range 3 {
		fmt.Fprintf(&b, `<text class="tick-text" x="%.1f" y="%g" text-anchor="%s">%s</text>`,
			x(time.Duration(i)*pic.Period), height-9, [...]string{"start", "middle", "middle"}[i], periods(pic.Period, i))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers
}

// bar draws how much of something is left, from 0 to 1. The number stands beside it.
func bar(part float64, l level) template.HTML {
	return template.HTML(fmt.Sprintf( //nolint:gosec // a number and a constant
		`<svg class="bar-left %s" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">`+
			`<rect class="all" width="100" height="4"/><rect width="%.1f" height="4" fill="currentColor"/></svg>`, l, 100*part))
}

// ticks returns a few round numbers up to the highest.
func ticks(highest float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(highest)))
	switch n := highest / step; {
	case n < 2:
		step /= 2
	case n > 5:
		step *= 2
	}
	all := []float64{0}
	for n := max(step, 1); n <= highest; n += max(step, 1) {
		all = append(all, n)
	}
	return all
}

// periods returns n periods in words: "0", "1 min", "2 min".
func periods(d time.Duration, n int) string {
	if n == 0 {
		return "0"
	}
	return span(d * time.Duration(n))
}
