package main

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Lengths of a chart in pixels.
const (
	chartWidth = 900
	chartEdge  = 16
	nameWidth  = 236
	figures    = 226 // what stands behind the longest bar
	barHeight  = 16
	barStep    = 24
	panelTitle = 26
)

// The colours are those of the other pictures (Okabe and Ito, 2008), with a ground of their own, by day and by night.
const chartStyle = `text{font:12px "Liberation Sans",Arial,Helvetica,sans-serif;fill:#1f2328}
.g{fill:#fff}.t{font-size:17px;font-weight:bold}.n{fill:#59636e}.b,.weir{font-weight:bold}
rect.weir{fill:#0072b2}rect.peer{fill:#9aa5b1}rect.floor{fill:#d8dee4}.r{stroke:#1f2328;stroke-width:1}.a{stroke:#59636e}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.g{fill:#0d1117}.n{fill:#9198a1}
rect.weir{fill:#3aa0dd}rect.peer{fill:#6e7781}rect.floor{fill:#3d444d}.r{stroke:#e6edf3}.a{stroke:#9198a1}}`

// drawChart draws sections of one chart: bars that all have the same scale, the best first.
func drawChart(all []outcome) []byte {
	var b bytes.Buffer
	s := all[0].section
	note := s.note + " " + s.unit.caption()
	if slices.ContainsFunc(all[0].Rows, func(r rowOutcome) bool { return r.Kind == floor && r.Name != s.subtract }) {
		note += " Faint bars are no libraries, but what a program could do by hand."
	}
	notes := wrap(note+brackets(all), 140)
	y := 0
	text := func(class string, x, y int, anchor, words string) {
		if class != "" {
			class = ` class="` + class + `"`
		}
		if anchor != "" {
			anchor = ` text-anchor="` + anchor + `"`
		}
		fmt.Fprintf(&b, `<text%s x="%d" y="%d"%s>`, class, x, y, anchor)
		_ = xml.EscapeText(&b, []byte(words)) // a Buffer takes all
		b.WriteString("</text>\n")
	}
	y += chartEdge + 18
	text("t", chartEdge, y, "", s.title)
	for _, n := range notes {
		y += 18
		text("n", chartEdge, y, "", n)
	}
	y += 10
	most := 0.0
	for _, o := range all {
		for _, l := range o.lines() {
			most = max(most, 1.1*l.value.median) // a longer range ends at the edge
		}
	}
	for _, o := range all {
		lines := o.lines()
		slices.SortStableFunc(lines, func(a, b line) int {
			if s.unit.longer() {
				return cmp.Compare(b.value.median, a.value.median)
			}
			return cmp.Compare(a.value.median, b.value.median)
		})
		if o.section.panel != "" {
			y += panelTitle
			text("b", chartEdge, y-6, "", o.section.panel)
		}
		top := y
		scale := float64(chartWidth-2*chartEdge-nameWidth-figures) / most
		at := func(v float64) float64 { return chartEdge + nameWidth + min(max(0, v), most)*scale }
		for _, l := range lines {
			class := string(l.kind)
			text(class, chartEdge+nameWidth-8, y+17, "end", l.name)
			fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n",
				class, chartEdge+nameWidth, y+(barStep-barHeight)/2, max(1, at(l.value.median)-at(0)), barHeight)
			end := at(l.value.median)
			if l.value.high > l.value.low {
				fmt.Fprintf(&b, `<path class="r" d="M%.1f %dH%.1f"/>`+"\n", at(l.value.low), y+barStep/2, at(l.value.high))
				end = max(end, at(l.value.high))
			}
			text(class, int(end)+8, y+17, "", l.caption(o.section))
			y += barStep
		}
		fmt.Fprintf(&b, `<path class="a" d="M%d %dV%d"/>`+"\n", chartEdge+nameWidth, top, y)
		y += 6
	}
	height := y + chartEdge - 6
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">`+"\n<style>%s</style>\n",
		chartWidth, height, chartWidth, height, chartStyle)
	fmt.Fprintf(&out, `<rect class="g" width="%d" height="%d"/>`+"\n", chartWidth, height)
	out.Write(b.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// brackets says what the figure in brackets is.
func brackets(all []outcome) string {
	first := all[0].section
	switch {
	case first.baseline == "" || first.unit == bytesPerKey:
		return ""
	case first.baseline == bare:
		return " In brackets: the share of the bare server."
	}
	for _, o := range all {
		if o.section.baseline != first.baseline {
			return " In brackets: the ratio to the one at 1.00."
		}
	}
	return " In brackets: the ratio to " + first.baseline + "."
}

// caption says what a bar is.
func (u unit) caption() string {
	switch {
	case u.longer():
		return "Longer is better."
	case u == nanoseconds || u == halfOfThem:
		return "In nanoseconds; shorter is better."
	default:
		return "Shorter is better."
	}
}

// caption is what stands behind the bar.
func (l line) caption(s section) string {
	words := figure(l.value.median)
	if len(l.ratios) > 0 && !math.IsNaN(l.ratios[0]) {
		if s.baseline == bare {
			words += fmt.Sprintf(" (%.0f %%)", 100*l.ratios[0])
		} else {
			words += fmt.Sprintf(" (%s)", ratio(l.ratios[0]))
		}
	}
	if s.unit == bytesPerKey {
		words = fmt.Sprintf("%s, then %s", figure(l.value.median), figure(l.left))
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

// wrap breaks a text into lines of at most n letters.
func wrap(text string, n int) (lines []string) {
	var line string
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > n {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
