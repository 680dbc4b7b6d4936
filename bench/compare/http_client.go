package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// connection is a client of HTTP/1.1 that does as little as one can: it shares the machine with the server.
type connection struct {
	net.Conn

	in *bufio.Reader
}

func (c client) connect(ctx context.Context) (*connection, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	return &connection{conn, bufio.NewReader(conn)}, nil
}

// patience is for a server that has stopped.
const patience = 30 * time.Second

var contentLength = []byte("content-length:")

// ask sends a request and returns the status of the answer, whose body it skips.
func (c *connection) ask(request []byte) (status int, err error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
	length := 0
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			if len(line) < len("HTTP/1.1 200") {
				return 0, fmt.Errorf("not an answer: %q", line)
			}
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, err
			}
		case len(line) == 0:
			_, err := c.in.Discard(length)
			return status, err
		case len(line) > len(contentLength) && bytes.EqualFold(line[:len(contentLength)], contentLength):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):]))); err != nil {
				return 0, err
			}
		}
	}
}

// client is how to reach a site.
type client struct{ address, prefix string }

func (c client) request(key string) []byte {
	return fmt.Appendf(nil, "GET /many HTTP/1.1\r\nHost: %s\r\n%s: %s%s\r\n\r\n", c.address, clientHeader, strings.ReplaceAll(c.prefix, " ", "-"), key)
}

// check fails unless the site admits exactly its limit, and for each client by itself.
func (c client) check(tb testing.TB) {
	tb.Helper()
	conn, err := c.connect(tb.Context())
	require.NoError(tb, err)
	defer conn.Close()
	for _, key := range []string{"0", "1"} {
		got := 0
		for range 3 * few().rate {
			status, err := conn.ask(c.request(key))
			require.NoError(tb, err)
			if status == http.StatusOK {
				got++
			} else {
				require.Equal(tb, http.StatusTooManyRequests, status)
			}
		}
		require.Equal(tb, few().rate, got, "admitted of a limit of %d", few().rate)
	}
}

// exhaust uses up the few requests of a key.
func (c client) exhaust(tb testing.TB, key string) {
	tb.Helper()
	conn, err := c.connect(tb.Context())
	require.NoError(tb, err)
	defer conn.Close()
	for range 3 * few().rate {
		_, err := conn.ask(c.request(key))
		require.NoError(tb, err)
	}
}
