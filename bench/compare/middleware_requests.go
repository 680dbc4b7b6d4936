package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// answer is the response to a request. Its header is valid until the next one.
type answer struct {
	status  int
	headers func(each func(name string))
}

// numbers reports whether the headers say how many there are, how many are left, and until when.
func (a answer) numbers() bool {
	found := map[string]bool{}
	a.headers(func(name string) {
		name = strings.ToLower(name)
		found[name[strings.LastIndexByte(name, '-')+1:]] = true
	})
	return found["limit"] && found["remaining"] && found["reset"]
}

// requests returns what asks an application in the name of one of n addresses, by one goroutine and without a network.
// It allocates nothing itself.
func requests(ctx context.Context, a app, n int) func(i int) answer {
	if f, ok := a.(*fiber.App); ok {
		return fiberRequests(f, n)
	}
	handler := a.(http.Handler) //nolint:forcetypeassert // see app
	all := make([]*http.Request, n)
	for i := range all {
		all[i] = httptest.NewRequestWithContext(ctx, http.MethodGet, "/many", http.NoBody)
		all[i].RemoteAddr = fmt.Sprintf("203.0.%d.%d:4711", i>>8, i&255)
	}
	w := &sink{header: http.Header{}}
	headers := func(each func(string)) {
		for name := range w.header {
			each(name)
		}
	}
	return func(i int) answer {
		clear(w.header)
		w.status = http.StatusOK
		handler.ServeHTTP(w, all[i])
		return answer{w.status, headers}
	}
}

// sink is an http.ResponseWriter that keeps the status and the header.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

func fiberRequests(a *fiber.App, n int) func(i int) answer {
	addresses := make([]net.Addr, n)
	for i := range addresses {
		addresses[i] = &net.TCPAddr{IP: net.IPv4(203, 0, byte(i>>8), byte(i)), Port: 4711}
	}
	var req fasthttp.Request
	req.Header.SetMethod(http.MethodGet)
	req.SetRequestURI("/many")
	var ctx fasthttp.RequestCtx
	ctx.Init(&req, addresses[0], nil)
	handler := a.Handler()
	headers := func(each func(string)) {
		ctx.Response.Header.VisitAll(func(name, _ []byte) { each(string(name)) })
	}
	return func(i int) answer {
		ctx.SetRemoteAddr(addresses[i])
		ctx.Response.Reset()
		ctx.ResetUserValues() // as the server does between two requests
		handler(&ctx)
		return answer{ctx.Response.StatusCode(), headers}
	}
}
