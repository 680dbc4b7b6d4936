package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// table writes Markdown.
func (r *report) table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Comparison\n\nWritten by `go run -C bench ./compare -out compare`: %d cores, %s, contenders took turns. ",
		r.Machine.Cores, r.Machine.Go)
	b.WriteString("Figures are medians, ranges are the least and the most of all rounds, and ratios are medians of the ratios within a round. " +
		"They are from one machine on which clients, servers, Redis and the network share the cores: only the ratios hold elsewhere.\n\n")
	b.WriteString("Contenders: " + strings.Join(r.Machine.Contenders, ", "))
	b.WriteString(".\n\nAllocations and processor time are for each decision, those of the whole process, its collector included. " +
		"Failed are the decisions that ended in an error, and of weir also those that the process made by itself because Redis did not answer within " +
		"the deadline; they count nowhere else.\n")
	for _, o := range r.Sections {
		o.table(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (o outcome) table(b *strings.Builder) {
	s := o.section
	fmt.Fprintf(b, "\n## %s\n\n%s", strings.TrimSuffix(s.title+": "+s.panel, ": "), s.note)
	if s.rounds == 0 && len(o.Rows) > 0 {
		fmt.Fprintf(b, " %d rounds of %v.", len(o.Rows[0].Samples), o.Slice)
	}
	b.WriteString("\n\n")
	lines := o.lines()
	type column struct {
		head string
		cell func(l line) string
	}
	var columns []column
	add := func(head string, cell func(l line) string) { columns = append(columns, column{head, cell}) }
	add(string(s.unit), func(l line) string { return figure(l.value.median) })
	if s.rounds == 0 {
		add("range", func(l line) string { return figure(l.value.low) + " to " + figure(l.value.high) })
	}
	for i, name := range s.baselines() {
		add("times "+name, func(l line) string { return ratio(l.ratios[i]) })
	}
	if s.unit == bytesPerKey {
		add("left after expiry", func(l line) string { return figure(l.left) })
	}
	if s.rounds == 0 {
		add("allocations", func(l line) string { return allocations(l.allocs) })
		whose := "client CPU"
		if s.subtract != "" {
			whose = "CPU"
		}
		add(whose, func(l line) string { return duration(l.client) })
		if slices.ContainsFunc(lines, func(l line) bool { return l.server > 0 }) {
			add("Redis CPU", func(l line) string { return duration(l.server) })
			add("p50", func(l line) string { return duration(l.p50) })
			add("p99", func(l line) string { return duration(l.p99) })
			add("failed", func(l line) string { return share(l.failed) })
		}
	}
	b.WriteString("| |")
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.head)
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(columns)) + "\n")
	for _, l := range lines {
		name := l.name
		if l.kind == ours {
			name = "**" + name + "**"
		}
		fmt.Fprintf(b, "| %s |", name)
		for _, c := range columns {
			fmt.Fprintf(b, " %s |", c.cell(l))
		}
		b.WriteByte('\n')
	}
}

// figure formats a number with three digits that count, thousands apart.
func figure(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v < 0:
		return "-" + figure(-v)
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	case v < 1000:
		return fmt.Sprintf("%.0f", v)
	}
	step := math.Pow(10, math.Floor(math.Log10(v))-2)
	text := fmt.Sprintf("%.0f", math.Round(v/step)*step)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u00a0" + text[i:]
	}
	return text
}

func ratio(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case math.Abs(v) < 10:
		return fmt.Sprintf("%.2f", v)
	}
	return figure(v)
}

func allocations(v float64) string {
	if math.Abs(v) < 0.05 {
		return "0"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}

// share formats a share of decisions in percent.
func share(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.0005:
		return "< 0.1\u00a0%"
	}
	return fmt.Sprintf("%.1f\u00a0%%", 100*v)
}

// duration formats a time with three digits that count.
func duration(d time.Duration) string {
	step := math.Pow(10, max(0, math.Floor(math.Log10(float64(max(1, d))))-2))
	text := d.Round(time.Duration(step)).String()
	unit := strings.IndexAny(text, "nµms")
	return text[:unit] + "\u00a0" + strings.Replace(text[unit:], "µ", "u", 1)
}
