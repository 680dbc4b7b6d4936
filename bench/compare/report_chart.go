package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/weir-go/weir/bench/internal/draw"
)

// Lengths of a chart in pixels.
const (
	nameWidth = 236
	figures   = 226 // what stands behind the longest bar
	barHeight = 16
	barStep   = 24
)

// drawChart draws sections of one chart: bars that all have the same scale, the best first.
func drawChart(all []outcome) []byte {
	s := all[0].section
	note := s.note + " " + s.unit.caption()
	if slices.ContainsFunc(all[0].Rows, func(r rowOutcome) bool { return r.Kind == floor && r.Name != s.subtract }) {
		note += " Faint bars are no libraries, but what a program could do by hand."
	}
	if s.unit != bytesPerKey {
		note += " In brackets: the ratio to the one at 1.00."
	}
	page := draw.New(s.title, note)
	most := 0.0
	for _, o := range all {
		for _, l := range o.lines() {
			most = max(most, 1.1*l.value.median) // a longer range ends at the edge
		}
	}
	const left = draw.Margin + nameWidth
	at := func(v float64) float64 {
		return left + min(max(0, v), most)*(draw.Width-draw.Margin-left-figures)/most
	}
	for _, o := range all {
		lines := o.lines()
		slices.SortStableFunc(lines, func(a, b line) int {
			if s.unit == perSecond { // more is better
				a, b = b, a
			}
			return cmp.Compare(a.value.median, b.value.median)
		})
		if o.section.panel != "" {
			page.Y += 26
			page.Text("bold", draw.Margin, page.Y-6, "", o.section.panel)
		}
		top := page.Y
		for _, l := range lines {
			class, middle, end := string(l.kind), page.Y+barStep/2, at(l.value.median)
			page.Text(class, left-8, middle+5, "end", l.name)
			page.Box(class, left, middle-barHeight/2, max(1, end-left), barHeight)
			if l.value.high > l.value.low {
				page.Level("line", at(l.value.low), middle, at(l.value.high))
				end = max(end, at(l.value.high))
			}
			page.Text(class, end+8, middle+5, "", l.caption(o.section))
			page.Y += barStep
		}
		page.Path("axis", fmt.Sprintf("M%d %sV%s", left, draw.Number(top), draw.Number(page.Y)))
		page.Y += 6
	}
	return page.SVG()
}

// caption explains the bars.
func (u unit) caption() string {
	if u == perSecond {
		return "Longer is better."
	}
	if u == bytesPerKey {
		return "Shorter is better."
	}
	return "In nanoseconds; shorter is better."
}

// caption returns the figures behind a bar.
func (l line) caption(s section) string {
	words := figure(l.value.median)
	if s.unit == bytesPerKey {
		words += ", then " + figure(l.left)
	} else if !math.IsNaN(l.ratios[0]) {
		words += fmt.Sprintf(" (%s)", ratio(l.ratios[0]))
	}
	if s.subtract != "" {
		words += ", " + allocations(l.allocs) + " allocation"
		if allocations(l.allocs) != "1" {
			words += "s"
		}
	}
	if l.failed > 0 {
		words += ", failed: " + share(l.failed)
	}
	return words
}
