// Package answer is the answer's header, as the adapters of frameworks on net/http see it.
package answer

import (
	"net/http"
	"strings"
)

// Fields is an answer's header. It implements guard.Header. It is part of what an adapter makes for a request, so that the
// lines of header fields, which are slices of one string each, take no memory of their own.
type Fields struct {
	header http.Header
	lines  [7]string // as many as guard sets unless told to set more
	used   int
}

// To is for an answer with that header.
func To(h http.Header) Fields { return Fields{header: h} }

// Get returns what stands in a field, its lines joined by commas.
func (f *Fields) Get(name string) string {
	switch lines := f.header[name]; len(lines) {
	case 0:
		return ""
	case 1:
		return lines[0]
	default:
		return strings.Join(lines, ", ")
	}
}

// Set replaces what stands in a field.
func (f *Fields) Set(name, value string) {
	if f.used == len(f.lines) {
		f.header[name] = []string{value}
		return
	}
	i := f.used
	f.used++
	f.lines[i] = value
	f.header[name] = f.lines[i:f.used:f.used] // whoever appends to it must not meet the next one
}
