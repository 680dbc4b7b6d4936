// Package answer is the answer's header, as the adapters of frameworks on net/http see it.
package answer

import (
	"net/http"
	"strings"
)

// Fields is an answer's header. It implements guard.Header. An adapter has it in what it allocates for a request, so
// that the lines of header fields, which are slices of one string each, need no allocations of their own.
type Fields struct {
	header http.Header
	free   []string  // lines that are not used yet
	first  [3]string // as many as an admission sets
}

// Wrap makes f the fields of h. It is called first, and f must not be copied afterwards.
func (f *Fields) Wrap(h http.Header) { f.header, f.free = h, f.first[:] }

// Get returns the value of a field, its lines joined by commas.
func (f *Fields) Get(name string) string { return strings.Join(f.header[name], ", ") }

// Del removes a field.
func (f *Fields) Del(name string) { delete(f.header, name) }

// Set replaces the value of a field.
func (f *Fields) Set(name, value string) {
	if len(f.free) == 0 {
		f.free = make([]string, 4) // a refusal sets so many more
	}
	f.free[0] = value
	f.header[name] = f.free[:1:1] // so that appending to it does not overwrite the next one
	f.free = f.free[1:]
}
