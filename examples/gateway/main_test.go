package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/gatewaytest"
)

func TestRun(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nginx"); err != nil && os.Getenv("WEIR_REQUIRE_GATEWAYS") == "" {
		if _, err := os.Stat("/usr/sbin/nginx"); err != nil {
			t.Skip("there is no nginx; install it to run this test")
		}
	}
	listen := fmt.Sprintf("127.0.0.1:%d", gatewaytest.FreePort(t))

	ctx, cancel := context.WithCancel(t.Context())
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, out, []string{"-listen", listen})
		_ = out.CloseWithError(err) // the test below reads it
		ended <- err
	}()
	lines := bufio.NewScanner(said)
	for range 3 {
		require.True(t, lines.Scan(), "%v", lines.Err())
	}

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(method, path string) (int, http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+listen+path, nil)
		require.NoError(t, err)
		res, err := client.Do(r)
		require.NoError(t, err)
		_ = res.Body.Close()
		return res.StatusCode, res.Header
	}
	for i, want := range []int{200, 200, 429} {
		status, header := ask(http.MethodPost, "//login")
		assert.Equal(t, want, status, i)
		assert.Equal(t, "2", header.Get("X-Ratelimit-Limit"))
	}
	for i, want := range []int{200, 200, 200, 429} { // the logins were two of five
		status, header := ask(http.MethodGet, "/")
		assert.Equal(t, want, status, i)
		assert.Equal(t, want == 429, header.Get("Retry-After") != "")
	}
	status, _ := ask(http.MethodGet, "/healthz")
	assert.Equal(t, http.StatusOK, status)

	cancel()
	require.NoError(t, <-ended)
	_, err := net.Dial("tcp", listen)
	assert.Error(t, err, "nginx has ended")
}

// The configuration is that of the docs.
func TestConfig(t *testing.T) {
	t.Parallel()
	assert.Contains(t, config, gatewaytest.Documented(t, "nginx: whole"))
}
