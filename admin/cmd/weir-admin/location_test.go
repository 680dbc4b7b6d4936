package main

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBeyond(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": false, "127.8.8.8:1": false, "[::1]:1": false, "0.0.0.0:1": true, "[::]:1": true, "10.0.0.1:1": true,
	} {
		assert.Equal(t, want, beyond(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))), address)
	}
}

func TestPublicURL(t *testing.T) {
	here := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:7070"))
	everywhere := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("0.0.0.0:7070"))
	got, err := publicURL("", here)
	require.NoError(t, err)
	assert.Equal(t, "http://127.0.0.1:7070", got)
	got, err = publicURL("https://limits.example.com", everywhere)
	require.NoError(t, err)
	assert.Equal(t, "https://limits.example.com", got)
	_, err = publicURL("", everywhere)
	assert.ErrorContains(t, err, "-public-url")
}

func TestLocation(t *testing.T) {
	for _, text := range []string{"weir.db", "redis://127.0.0.1:6379", "redis://user@h?addr=h:1", "a file %"} {
		got, err := location(text).read("-x")
		require.NoError(t, err, text)
		assert.Equal(t, text, got)
	}
	got, err := location("@" + write(t, "redis://user:secret@h\n")).read("-x")
	require.NoError(t, err)
	assert.Equal(t, "redis://user:secret@h", got)
	_, err = location("@" + write(t, "a\nb\n")).read("-x")
	assert.ErrorContains(t, err, "several lines")
}
