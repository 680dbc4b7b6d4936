package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
)

// print writes a value as JSON. Its texts may be anybody's: what a terminal would obey is escaped.
func (e *environment) print(value any) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic(err) // of types of this program
	}
	var b strings.Builder
	for _, r := range string(data) {
		switch {
		case r < 0x7f || unicode.IsPrint(r): // those below a space are escaped already
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	fmt.Fprintln(e.out, b.String())
}

func (e *environment) printf(format string, args ...any) { fmt.Fprintf(e.out, format, args...) }

// table writes rows in columns.
func (e *environment) table(rows [][]string) {
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	_ = w.Flush()
}

// shown returns a text as a terminal may show it: quoted, if it has anything but letters, digits, signs and spaces.
func shown(s string) string {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// lines is shown for a text of several lines.
func lines(s string) string {
	all := strings.Split(s, "\n")
	for i := range all {
		all[i] = shown(all[i])
	}
	return strings.Join(all, "\n")
}

// count returns a number and a noun, such as "1 policy".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
