package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The first lines name the caller who guesses passwords, masked.
func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, "", false))
	assert.Contains(t, out.String(), "All is well: this process counts for itself\n  - one key makes 100% of what login refuses: ip=203.0.113.0/24\n")
	assert.NotContains(t, out.String(), "203.0.113.7")
}

// With -serve the page is there until the program ends.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, writer, "127.0.0.1:0", true) }()
	text := ""
	for buf := make([]byte, 1024); !strings.Contains(text, "the page is at "); {
		n, err := reader.Read(buf)
		require.NoError(t, err)
		text += string(buf[:n])
	}
	_, url, _ := strings.Cut(text, "the page is at ")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSpace(url), http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	page, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Contains(t, string(page), "WORST CALLERS")
	cancel()
	require.NoError(t, <-done)
	http.DefaultClient.CloseIdleConnections()
}
