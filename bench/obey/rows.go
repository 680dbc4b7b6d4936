package main

import (
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/go-chi/httprate"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

const (
	limit   = 100
	window  = 10 * time.Second
	workers = 20 // in each process
	eager   = 5  // how many times the limit all of them would send
	longest = time.Minute
)

// row is a server with a limit, its clients, and the bars for them.
type row struct {
	name      string
	server    server
	processes int
	obeys     bool
	lasts     time.Duration
	bars      *bars
}

// bars are shares.
type bars struct {
	refused  float64 // of the answers, that may be 429 after the first ten at most
	admitted float64 // of what the limit admits, at least
}

// rows returns the rows of the table, one process before four.
func rows() []row {
	var alone, shared []row
	add := func(name string, s server, one, four *bars) {
		r := row{name: name, server: s, obeys: true, lasts: max(longest, 3*s.window)}
		if one != nil {
			r.processes, r.bars = 1, one
			alone = append(alone, r)
		}
		if four != nil {
			r.processes, r.bars = 4, four
			shared = append(shared, r)
		}
	}
	standard := guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true}
	for _, algorithm := range []string{"gcra", "token-bucket", "fixed-window"} {
		add("weir "+algorithm, weir(algorithm, standard), &bars{0, .98}, &bars{.005, .98})
	}
	add("express-rate-limit draft-8", express(expressOptions{StandardHeaders: "draft-8"}), &bars{0, .98}, &bars{.005, .98})
	add("weir gcra, X-RateLimit", weir("gcra", guard.Headers{}), &bars{0, .98}, nil)
	for _, algorithm := range []string{"sliding-counter", "sliding-log", "sliding-window"} {
		add("weir "+algorithm, weir(algorithm, standard), &bars{0, .95}, &bars{.02, .85})
	}
	legacy := express(expressOptions{LegacyHeaders: true})
	legacy.limit, legacy.window = 6*limit, 6*window
	add("express-rate-limit legacy, 60 s", legacy, &bars{0, .97}, nil)
	add("go-chi/httprate", chi(), &bars{.005, .90}, &bars{.02, .85})
	baseline := row{name: "weir gcra, without obey", server: weir("gcra", standard), processes: 1, lasts: longest}
	return append(append(alone, shared...), baseline)
}

// server is a limit and how it is served: by a handler, or by express-rate-limit.
type server struct {
	limit   int
	window  time.Duration
	burst   int           // what a meter admits at once besides
	late    time.Duration // how much later than after a window a unit comes back
	handler func() (http.Handler, error)
	express *expressOptions
}

// admits returns how many requests the limit admits in a given time to a client that knows it, one after the other.
func (s server) admits(d time.Duration) float64 {
	return float64(s.burst) + float64(s.limit)*d.Seconds()/(s.window+s.late).Seconds()
}

// authorization is the key of all servers.
const authorization = "Authorization"

func answer(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }

func weir(algorithm string, style guard.Headers) server {
	s := server{limit: limit, window: window}
	switch algorithm {
	case "gcra":
		s.burst = limit
	case "sliding-window":
		s.late = window / 10 // a sub-window counts until all of it is older than the window
	}
	s.handler = func() (http.Handler, error) {
		g, err := guard.New(guard.Config{
			Rule: guard.Rule{
				Policy: fmt.Sprintf("api: %d/%.0fs %s", limit, window.Seconds(), algorithm),
				Key:    keyfunc.Header(authorization),
			},
			Headers: style,
		})
		if err != nil {
			return nil, err
		}
		return nethttp.Limit(g)(http.HandlerFunc(answer)), nil
	}
	return s
}

func chi() server {
	s := server{limit: limit, window: window}
	s.handler = func() (http.Handler, error) {
		key := func(r *http.Request) (string, error) { return r.Header.Get(authorization), nil }
		return httprate.LimitBy(limit, window, key)(http.HandlerFunc(answer)), nil
	}
	return s
}

func express(o expressOptions) server { return server{limit: limit, window: window, express: &o} }

// outcome is what became of a row.
type outcome struct {
	row
	skipped string // why there is none

	answers, admitted, refused, refusedLater int
	failed                                   map[string]int // by error, and by other statuses
}

func (o outcome) shareRefused() float64 {
	return float64(o.refusedLater) / math.Max(1, float64(o.answers))
}
func (o outcome) shareAdmitted() float64 { return float64(o.admitted) / o.server.admits(o.lasts) }

// met reports whether the outcome clears the bars of its row.
func (o outcome) met() bool {
	return o.bars == nil ||
		len(o.failed) == 0 && o.shareRefused() <= o.bars.refused && o.shareAdmitted() >= o.bars.admitted
}
