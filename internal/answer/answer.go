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
	free   []string  // lines that are not used yet
	first  [3]string // as many as an admission sets
}

// Of sets whose fields they are. It is called first, where f will stay.
func (f *Fields) Of(h http.Header) { f.header, f.free = h, f.first[:] }

// Get returns what stands in a field, its lines joined by commas.
func (f *Fields) Get(name string) string { return strings.Join(f.header[name], ", ") }

// Set replaces what stands in a field.
func (f *Fields) Set(name, value string) {
	if len(f.free) == 0 {
		f.free = make([]string, 4) // a refusal sets so many more
	}
	f.free[0] = value
	f.header[name] = f.free[:1:1] // whoever appends to it must not meet the next one
	f.free = f.free[1:]
}
