package inspect

import (
	"strings"
	"unicode/utf8"
)

// text returns v for a terminal.
func (v *view) text() string {
	var b strings.Builder
	b.WriteString(v.Head + "\n\n" + v.Verdict + "\n")
	for _, c := range v.Causes {
		mark := "  - "
		if c.Grave {
			mark = "  ! "
		}
		b.WriteString(mark + c.Text + "\n")
		for _, more := range c.More {
			b.WriteString("    " + more + "\n")
		}
	}
	for _, s := range v.Sections {
		b.WriteString("\n" + strings.ToUpper(s.Title) + "\n")
		for _, n := range s.Notes {
			b.WriteString("  " + n + "\n")
		}
		s.table(&b)
	}
	return b.String()
}

// table writes the rows in columns. A row of one cell is a line.
func (s *section) table(b *strings.Builder) {
	if len(s.Rows) == 0 {
		return
	}
	rows := append([][]cell{cells(s.Head...)}, s.Rows...)
	widths := make([]int, len(s.Head))
	for _, row := range rows {
		if len(row) == 1 {
			continue
		}
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	for _, row := range rows {
		line := []string{""}
		for i, c := range row {
			width := widths[i]
			if len(row) == 1 {
				width = 0
			}
			blanks := strings.Repeat(" ", max(width-utf8.RuneCountInString(c.Text), 0))
			switch {
			case width == 0 && len(row) > 1: // a column with nothing in it, not even a head
			case s.Numbers[i]:
				line = append(line, blanks+c.Text)
			default:
				line = append(line, c.Text+blanks)
			}
		}
		b.WriteString(strings.TrimRight(strings.Join(line, "  "), " ") + "\n")
	}
}
