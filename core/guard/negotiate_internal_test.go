package guard

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAccepted(t *testing.T) {
	for accept, want := range map[string]format{
		"":                                    asText,
		"*/*":                                 asText,
		"text/plain":                          asText,
		"text/html":                           asText,
		"image/png, application/vnd.api+json": asText,
		"text/html,application/xhtml+xml,*/*;q=0.8":        asText, // a browser
		"application/json":                                 asJSON,
		"Application/JSON ; charset=utf-8":                 asJSON,
		"application/json, text/plain, */*":                asJSON, // axios
		"text/plain, application/json":                     asJSON,
		"text/*, application/json":                         asJSON,
		"*/*, application/json":                            asJSON,
		"text/html, application/json;q=0.1":                asJSON,
		"application/json;q=0.9, text/plain":               asText,
		"application/json;q=0.9, */*":                      asText,
		"application/json;q=0":                             asText,
		"application/json;Q=0.000, text/html":              asText,
		"application/problem+json":                         asProblem,
		"application/json, application/problem+json":       asProblem,
		"application/problem+json;q=0.9, application/json": asJSON,
		"application/*":                                    asProblem,
		"application/*;q=0.5, application/json":            asJSON,
		"application/problem+json;q=0, application/*":      asJSON,
		"application/json;q=0.5, application/json;q=1":     asJSON,
		"text/plain;q=0.2, application/json;q=0.30":        asJSON,
		"text/plain;q=0.301, application/json;q=0.3":       asText,
		"application/json;q=two":                           asJSON, // what cannot be read is not there
		"application/json;q=0.1234;q=0":                    asJSON,
		"application/json;q=0.x":                           asJSON,
		",;=,;q,, application/json":                        asJSON,
	} {
		assert.Equal(t, want, accepted([]string{accept}), accept)
		if accept != "*/*" {
			assert.Equal(t, want, accepted(strings.Split(accept, ",")), "%s, in lines", accept)
		}
	}
	assert.Equal(t, asText, accepted(nil))
	assert.Equal(t, asText, accepted([]string{"*/*", "application/json;q=0.5"}))
}

// What stands behind the first KiB, or the 16th entry, is not read, in one line or in many.
func TestAcceptedBounds(t *testing.T) {
	other := func(n int) []string { return slices.Repeat([]string{"image/png"}, n) }
	const json = "application/json"
	for _, c := range []struct {
		lines []string
		want  format
	}{
		{append(other(15), json), asJSON},
		{append(other(16), json), asText},
		{append(make([]string, 15), json), asJSON},
		{append(make([]string, 16), json), asText},
		{[]string{strings.Repeat("x", maxAccept-len(json)-1), json}, asJSON},
		{[]string{strings.Repeat("x", maxAccept), json}, asText},
		{[]string{strings.Repeat(" ", maxAccept-len(json)-1), json}, asJSON},
		{[]string{strings.Repeat(" ", maxAccept) + json}, asText},
		{[]string{json, strings.Repeat(",", 1<<20)}, asJSON},
	} {
		assert.Equal(t, c.want, accepted(c.lines), "%d lines, %.40q", len(c.lines), c.lines)
		if len(c.lines) > 1 {
			assert.Equal(t, c.want, accepted([]string{strings.Join(c.lines, ",")}), "joined, %d lines, %.40q", len(c.lines), c.lines)
		}
	}
}

func TestIsGRPCType(t *testing.T) {
	for contentType, want := range map[string]bool{
		"":                             false,
		"application/grpc":             true,
		"Application/gRPC":             true,
		"application/grpc+proto":       true,
		"application/grpc;charset=x":   true,
		"application/grpc-web":         false,
		"application/grpc-web+proto":   false,
		"application/grpcx":            false,
		"application/json":             false,
		"application/octet-stream-grp": false,
	} {
		assert.Equal(t, want, isGRPCType([]string{contentType}), contentType)
	}
	assert.False(t, isGRPCType(nil))
	assert.False(t, isGRPCType([]string{"application/grpc", "application/grpc"}))
}

// An Accept header is what an attacker chooses: it is read without memory.
func TestAcceptedAllocations(t *testing.T) {
	lines := []string{"text/html,application/xhtml+xml", strings.Repeat("application/json;q=0.5, */*;q=0.1;x=y,", 50)}
	assert.Zero(t, testing.AllocsPerRun(100, func() { accepted(lines) }))
}

func FuzzAccepted(f *testing.F) {
	f.Add("application/json;q=0.5, */*;q=0.1")
	f.Fuzz(func(t *testing.T, line string) {
		got := accepted([]string{line})
		assert.LessOrEqual(t, got, asProblem)
		if got != asText { // nobody gets what he does not name
			assert.Contains(t, strings.ToLower(line), "application/")
		}
		assert.Equal(t, got, accepted([]string{strings.ToUpper(line)}))
	})
}
