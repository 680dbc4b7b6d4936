package main

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

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

// A program that cannot serve says why, and what to do.
func TestRefusesToStart(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	const good = "anna:0123456789abcdefghij\n"
	for _, test := range []struct {
		args []string
		says string
	}{
		{nil, "-token-file"},
		{[]string{"-token-file", filepath.Join(dir, "none")}, "none"},
		{[]string{"-token-file", file("anna:short\n")}, "line 1"},
		{[]string{"-token-file", file("# nobody\n")}, "no tokens"},
		{[]string{"-token-file", file(good), "-redis", "127.0.0.1:6379"}, "redis"},
		{[]string{"-token-file", file(good), "-db", ":memory:"}, "memory"},
		{[]string{"-token-file", file(good), "-db", "oracle://x"}, "oracle"},
		{[]string{"-token-file", file(good), "extra"}, "extra"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // if it serves after all
		args := append([]string{"-db", filepath.Join(dir, "weir.db"), "-addr", "127.0.0.1:0"}, test.args...)
		assert.ErrorContains(t, run(ctx, args), test.says, "%q", test.args)
		cancel()
	}
}
