package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
)

// usageReport is what a server has used.
type usageReport struct {
	Processor time.Duration
	Allocs    uint64
}

// serve serves HTTP until in ends, says where, and what it has used whenever it is asked.
func (t serverTask) serve(tb testing.TB, in io.Reader, out io.Writer) error {
	a, err := t.app(tb)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if f, ok := a.(*fiber.App); ok {
		go func() { _ = f.Listener(l) }()
	} else {
		server := &http.Server{Handler: a.(http.Handler)} //nolint:forcetypeassert,gosec // see app; nobody is slow here
		go func() { _ = server.Serve(l) }()
	}
	fmt.Fprintf(out, "%q\n", l.Addr().String())
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if err := json.NewEncoder(out).Encode(usageReport{processorTime(), m.Mallocs}); err != nil {
			return err
		}
	}
	return nil
}

// serverTask is what a child has to serve.
type serverTask struct {
	Framework, Site string
	Redis           []string
	Rate            int
	Period          time.Duration
	Patient         bool
}

func (t serverTask) app(tb testing.TB) (app, error) {
	for _, f := range sites {
		for _, c := range f.all {
			if f.framework == t.Framework && c.name == t.Site {
				return c.build(tb, backend{addrs: t.Redis, patient: t.Patient}, limit{t.Rate, t.Period}), nil
			}
		}
	}
	return nil, errors.New("no such site: " + strings.Join([]string{t.Framework, t.Site}, " "))
}
