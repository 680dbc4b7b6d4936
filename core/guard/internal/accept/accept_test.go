package accept

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]Format{
		"":                                    Text,
		"*/*":                                 Text,
		"text/plain":                          Text,
		"text/html":                           Text,
		"image/png, application/vnd.api+json": Text,
		"text/html,application/xhtml+xml,*/*;q=0.8":        Text, // a browser
		"application/json":                                 JSON,
		"Application/JSON ; charset=utf-8":                 JSON,
		"application/json, text/plain, */*":                JSON, // axios
		"text/plain, application/json":                     JSON,
		"text/*, application/json":                         JSON,
		"*/*, application/json":                            JSON,
		"text/html, application/json;q=0.1":                JSON,
		"application/json;q=0.9, text/plain":               Text,
		"application/json;q=0.9, */*":                      Text,
		"application/json;q=0":                             Text,
		"application/json;Q=0.000, text/html":              Text,
		"application/problem+json":                         Problem,
		"application/json, application/problem+json":       Problem,
		"application/problem+json;q=0.9, application/json": JSON,
		"application/*":                                    Problem,
		"application/*;q=0.5, application/json":            JSON,
		"application/problem+json;q=0, application/*":      JSON,
		"application/json;q=0.5, application/json;q=1":     JSON,
		"text/plain;q=0.2, application/json;q=0.30":        JSON,
		"text/plain;q=0.301, application/json;q=0.3":       Text,
		"application/json;q=two":                           JSON, // what cannot be read is not there
		"application/json;q=0.1234;q=0":                    JSON,
		"application/json;q=0.x":                           JSON,
		",;=,;q,, application/json":                        JSON,
	} {
		assert.Equal(t, want, Negotiate([]string{accept}), accept)
		if accept != "*/*" {
			assert.Equal(t, want, Negotiate(strings.Split(accept, ",")), "%s, in lines", accept)
		}
	}
	assert.Equal(t, Text, Negotiate(nil))
	assert.Equal(t, Text, Negotiate([]string{"*/*", "application/json;q=0.5"}))
}

// What stands behind the first KiB, or the 16th entry, is not read, in one line or in many.
func TestNegotiateBounds(t *testing.T) {
	other := func(n int) []string { return slices.Repeat([]string{"image/png"}, n) }
	const json = "application/json"
	for _, c := range []struct {
		lines []string
		want  Format
	}{
		{append(other(15), json), JSON},
		{append(other(16), json), Text},
		{append(make([]string, 15), json), JSON},
		{append(make([]string, 16), json), Text},
		{[]string{strings.Repeat("x", maxBytes-len(json)-1), json}, JSON},
		{[]string{strings.Repeat("x", maxBytes), json}, Text},
		{[]string{strings.Repeat(" ", maxBytes-len(json)-1), json}, JSON},
		{[]string{strings.Repeat(" ", maxBytes) + json}, Text},
		{[]string{json, strings.Repeat(",", 1<<20)}, JSON},
	} {
		assert.Equal(t, c.want, Negotiate(c.lines), "%d lines, %.40q", len(c.lines), c.lines)
		if len(c.lines) > 1 {
			assert.Equal(t, c.want, Negotiate([]string{strings.Join(c.lines, ",")}), "joined, %d lines, %.40q", len(c.lines), c.lines)
		}
	}
}

// No more is read than the bounds say, whatever is sent: that many bytes and entries are all the work there is.
func TestNegotiateWork(t *testing.T) {
	const megabyte = 1 << 20
	for name, lines := range map[string][]string{
		"commas":     {strings.Repeat(",", megabyte)},
		"entries":    {strings.Repeat("application/json;q=0.123,", megabyte/25)},
		"parameters": {"application/json" + strings.Repeat(";q", megabyte/2)},
		"spaces":     {strings.Repeat(" ", megabyte)},
		"lines":      slices.Repeat([]string{"application/json"}, megabyte/20),
		"no text":    make([]string, megabyte/20),
	} {
		bytes, n := 0, 0
		for entry := range entries(lines) {
			bytes += len(entry)
			n++
		}
		assert.LessOrEqual(t, bytes, 1024, name)
		assert.LessOrEqual(t, n, 16, name)
		assert.Zero(t, testing.AllocsPerRun(10, func() { Negotiate(lines) }), name)
	}
}

func TestIsGRPC(t *testing.T) {
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
		assert.Equal(t, want, IsGRPC([]string{contentType}), contentType)
	}
	assert.False(t, IsGRPC(nil))
	assert.False(t, IsGRPC([]string{"application/grpc", "application/grpc"}))
}

// Attackers choose their Accept header: it is read without allocating.
func TestNegotiateAllocations(t *testing.T) {
	lines := []string{"text/html,application/xhtml+xml", strings.Repeat("application/json;q=0.5, */*;q=0.1;x=y,", 50)}
	assert.Zero(t, testing.AllocsPerRun(100, func() { Negotiate(lines) }))
}

func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;q=0.5, */*;q=0.1")
	f.Fuzz(func(t *testing.T, line string) {
		got := Negotiate([]string{line})
		assert.LessOrEqual(t, got, Problem)
		if got != Text { // nobody gets what he does not name
			assert.Contains(t, strings.ToLower(line), "application/")
		}
		assert.Equal(t, got, Negotiate([]string{strings.ToUpper(line)}))
	})
}
