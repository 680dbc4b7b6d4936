package fiberhttp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/valyala/fasthttp"
)

func TestPath(t *testing.T) {
	for _, c := range []struct {
		path                     string
		unescaped, caseSensitive bool
		want                     string
	}{
		{"/Items/%41", false, false, "/items/a"},
		{"/Items/%41", false, true, "/Items/A"},
		{"/Items/%41", true, false, "/items/%41"},
		{"/100%", false, true, "/100%"},
		{"/\u00c4", false, false, "/\u00c4"}, // as Fiber has it
		{"", false, false, ""},
	} {
		assert.Equal(t, c.want, Path(c.path, c.unescaped, c.caseSensitive), "%+v", c)
	}
}

// What is returned does not change with the buffer in which fasthttp reads the next request.
func TestPathIsACopy(t *testing.T) {
	buffer := []byte("/login")
	path := Path(text(buffer), true, true)
	copy(buffer, "/other")
	assert.Equal(t, "/login", path)
}

func TestPeer(t *testing.T) {
	assert.Equal(t, netip.MustParseAddrPort("192.0.2.1:80"), Peer(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}))
	assert.Zero(t, Peer(&net.UnixAddr{Name: "/tmp/s", Net: "unix"}))
}

func TestLines(t *testing.T) {
	var h fasthttp.RequestHeader
	assert.Nil(t, Lines(&h, "X-Forwarded-For"))
	assert.Nil(t, Lines(&h, contentType))
	h.Add("X-Forwarded-For", "a, b")
	h.Add("X-Forwarded-For", "")
	h.Add("X-Forwarded-For", "c")
	h.SetContentType("text/plain")
	lines := Lines(&h, "X-Forwarded-For")
	assert.Equal(t, []string{"a, b", "", "c"}, lines)
	assert.Equal(t, []string{"text/plain"}, Lines(&h, contentType))
	h.Set("X-Forwarded-For", "z, z")
	assert.Equal(t, []string{"a, b", "", "c"}, lines, "they are copies")
}

func TestContentLength(t *testing.T) {
	for set, want := range map[int]int64{7: 7, 0: 0, -1: -1, -2: 0} {
		var h fasthttp.RequestHeader
		h.SetMethod("POST")
		h.SetContentLength(set)
		assert.Equal(t, want, ContentLength(&h), set)
	}
}

// Several lines become one, which Set then replaces.
func TestGetSet(t *testing.T) {
	var h fasthttp.ResponseHeader
	assert.Empty(t, Get(&h, "Vary"))
	h.Add("Vary", "Accept")
	assert.Equal(t, "Accept", Get(&h, "Vary"))
	h.Add("Vary", "Origin")
	assert.Equal(t, "Accept, Origin", Get(&h, "Vary"))
	name, value := "Vary", []byte("Cookie")
	Set(&h, name, text(value))
	copy(value, "Xxxxxx")
	assert.Equal(t, "Cookie", Get(&h, name))
	h.SetContentType("text/html")
	assert.Equal(t, "text/html", Get(&h, contentType))
}
