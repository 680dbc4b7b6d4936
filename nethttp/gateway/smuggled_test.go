package gateway_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp/gateway"
)

// sights counts requests by what is known of them on both sides of a gateway.
type sights struct {
	mu   sync.Mutex
	seen map[string]int
}

func (s *sights) add(method, target string) {
	if u, err := url.ParseRequestURI(target); err == nil { // Caddy writes some paths otherwise, and CONNECT has none
		target = path.Clean("/" + u.Path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	s.seen[method+" "+target]++
}

// oddRequests are requests that servers understand differently, or not at all. The second of a connection is one by
// which a test sees whether the gateway and the service agree on where the first one ends.
var oddRequests = []string{
	"GET /weir-check HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /./weir-check?a HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
	"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
	"CONNECT /odd HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET http://a HTTP/1.1\r\nHost: b\r\n\r\n",
	"GET http://a/odd HTTP/1.1\r\n\r\n",
	"GET http://user@a/odd HTTP/1.1\r\nHost: b\r\n\r\n",
	"GET https://a:443//odd HTTP/1.1\r\nHost: b\r\n\r\n",
	"GET ftp://a/odd HTTP/1.1\r\nHost: b\r\n\r\n",
	"GET /odd HTTP/1.0\r\n\r\n",
	"GET /odd HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	"GET /odd\r\n",
	"GET /odd HTTP/2.0\r\nHost: a\r\n\r\n",
	"GET /odd HTTP/1.1\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a b\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a/b?c\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost:\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a\r\n X-Original-Uri: /folded\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a\r\nX-Original-Uri : /space\r\n\r\n",
	"GET /odd HTTP/1.1\nHost: a\n\n",
	"GET /odd HTTP/1.1\r\nHost: a\rX-Original-Uri: /cr\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a\x00\r\n\r\n",
	"GET /od\x00d HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /odd\xff HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /odd%00 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /odd%zz HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /../../odd HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /odd/..;/odd HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /x\\..\\odd HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /odd#/else HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET //b/odd HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET ?odd HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET odd HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a\r\nConnection: X-Forwarded-For, X-Forwarded-Uri, X-Forwarded-Method, X-Forwarded-Host\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 40\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 35\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nContent-Length: +35\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nContent-Length: 0x23\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /odd HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=\"\n\"\r\nhello\r\n0\r\nX-Original-Uri: /trailer\r\n\r\n",
	"POST /odd HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
	"POST /odd HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
	"TRACE /odd HTTP/1.1\r\nHost: a\r\n\r\n",
	"G\"T /odd HTTP/1.1\r\nHost: a\r\n\r\n",
	"get /odd HTTP/1.1\r\nHost: a\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"GET /" + strings.Repeat("o", 7000) + " HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /" + strings.Repeat("o", 9000) + " HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /odd HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-Original-Address: 192.0.2.9\r\nX-Forwarded-For: 192.0.2.9\r\n", 60) + "\r\n",
}

// What a service gets has passed the check, as that request: nothing slips through because a gateway understands a
// request otherwise than the service, and the endpoint is asked about no other one than the service gets.
func TestNothingIsSmuggled(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			holdSmuggled(t, k, len(oddRequests), func(conn net.Conn, i int) {
				last := fmt.Sprintf("GET /last/%d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", i)
				_, _ = io.WriteString(conn, oddRequests[i]+last) // it may close the connection
				_, _ = io.Copy(io.Discard, conn)                 // as above
			})
		})
	}
}

// oddFields are requests of HTTP/2, each the fields in their order and the data.
var oddFields = []struct {
	fields [][2]string
	data   string
}{
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}}},
	{fields: [][2]string{{":method", "OPTIONS"}, {":scheme", "http"}, {":authority", "a"}, {":path", "*"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "http://b/odd"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "odd"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", ""}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd /x"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd\r\nX-Original-Uri: /x"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled"}}},
	{fields: [][2]string{{":method", "GET /smuggled HTTP/1.1\r\nX: "}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}}},
	{fields: [][2]string{{":method", "get"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {":path", "/other"}}},
	{fields: [][2]string{{":method", "GET"}, {":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {"x-first", "1"}, {":authority", "a"}, {":path", "/odd"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}}},
	{fields: [][2]string{{":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/odd"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/odd"}, {"host", "b"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"host", "b"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a/b"}, {":path", "/odd"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "https\r\n"}, {":authority", "a"}, {":path", "/odd"}}},
	{fields: [][2]string{{":method", "CONNECT"}, {":authority", "a:80"}}},
	{fields: [][2]string{{":method", "CONNECT"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {":protocol", "websocket"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"X-Original-URI", "/upper"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"x-a", "b\r\nx-original-uri: /line"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"x-a: b\r\nx-original-uri", "/line"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"connection", "x-forwarded-for, x-forwarded-uri"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"te", "gzip"}, {"upgrade", "h2c"}}},
	{fields: [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"x-original-uri", "/one"}, {"x-original-uri", "/two"}, {"x-forwarded-for", "192.0.2.9"}}},
	{[][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"transfer-encoding", "chunked"}}, "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"},
	{[][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"content-length", "0"}}, "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"},
	{[][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"content-length", "3"}}, "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"},
	{[][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}, {"content-length", "99"}}, "short"},
	{[][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/odd"}}, "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"},
}

// frame returns a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind)) //nolint:gosec // it is short
	return append(binary.BigEndian.AppendUint32(append(head, flags), stream), payload...)
}

// fieldsFrame returns the frame of a stream's header, with fields that are written as they are.
func fieldsFrame(flags byte, stream uint32, fields [][2]string) []byte {
	var block []byte
	for _, field := range fields {
		block = append(block, 0) // neither indexed nor compressed
		for _, text := range field {
			block = append(append(block, byte(len(text))), text...) //nolint:gosec // all are shorter than 127
		}
	}
	return frame(1, flags, stream, block)
}

// The same of clients that speak HTTP/2, which has other ways to say two things at once.
func TestNothingIsSmuggledOverHTTP2(t *testing.T) {
	t.Parallel()
	const endStream, endHeaders = 1, 4
	for _, k := range overHTTP2 {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			holdSmuggled(t, k, len(oddFields), func(conn net.Conn, i int) {
				odd := oddFields[i]
				wire := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...)
				if odd.data == "" {
					wire = append(wire, fieldsFrame(endHeaders|endStream, 1, odd.fields)...)
				} else {
					wire = append(append(wire, fieldsFrame(endHeaders, 1, odd.fields)...), frame(0, endStream, 1, []byte(odd.data))...)
				}
				wire = append(wire, fieldsFrame(endHeaders|endStream, 3, [][2]string{
					{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", fmt.Sprint("/last/", i)},
				})...)
				_, _ = conn.Write(wire) // the gateway may close the connection
				reader := bufio.NewReader(conn)
				for open := 2; open > 0; { // both streams, or the connection
					head := make([]byte, 9)
					if _, err := io.ReadFull(reader, head); err != nil {
						return
					}
					kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
					if _, err := reader.Discard(int(binary.BigEndian.Uint32(head) >> 8)); err != nil {
						return
					}
					if stream != 0 && (kind == 3 || kind <= 1 && flags&endStream != 0) {
						open--
					}
				}
			})
		})
	}
}

// holdSmuggled sends so many requests, each with another after it, and holds what comes to the service against what the
// endpoint was asked.
func holdSmuggled(t *testing.T, k kind, requests int, send func(conn net.Conn, i int)) {
	t.Helper()
	var asked, served sights
	names := map[gateway.Style][2]string{
		gateway.Nginx: {"X-Original-Method", "X-Original-Uri"}, gateway.Forwarded: {"X-Forwarded-Method", "X-Forwarded-Uri"},
	}[k.style]
	addresses := new(keys)
	check := newGateway(t, newGuard(t, guard.Config{Rule: guard.Rule{Policy: "all: 100000/1h", Key: keyfunc.IP()}, Observe: addresses.observe}),
		gateway.Options{Style: k.style, Deny: k.deny, Log: slog.New(slog.DiscardHandler)})
	d := k.open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &seenWriter{ResponseWriter: w}
		check.ServeHTTP(seen, r)
		if seen.status == 0 {
			asked.add(r.Header.Get(names[0]), r.Header.Get(names[1]))
		}
	}), patient, func(r *http.Request) { served.add(r.Method, r.RequestURI) })
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			conn, err := net.Dial("tcp", d.Addr(false))
			if !assert.NoError(t, err) {
				return
			}
			defer conn.Close()
			assert.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second))) // a gateway may wait for more
			send(conn, i)
		})
	}
	all.Wait()
	served.mu.Lock()
	defer served.mu.Unlock()
	asked.mu.Lock()
	defer asked.mu.Unlock()
	require.NotEmpty(t, served.seen)
	for what, times := range served.seen {
		assert.LessOrEqual(t, times, asked.seen[what], "%q has passed the check", what)
	}
	for _, key := range addresses.take() {
		assert.Equal(t, "all ip=127.0.0.1", key)
	}
	t.Logf("%d of %d requests and those after them came to the service", d.served.Load(), requests)
}
