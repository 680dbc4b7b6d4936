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
)

// row is a server with a limit, the clients that share one key, and the bars for them.
type row struct {
	*server

	processes int
	bars      bars
}

// bars are shares.
type bars struct {
	refused  float64 // of the answers, that may be 429 after the first ten at most
	admitted float64 // of what the same server admits at the same time to clients that do not obey, at least
}

// rows returns the rows of the table, one process before four.
func rows() []row {
	var alone, shared []row
	add := func(s *server, one, four *bars) {
		if s.lasts == 0 {
			s.lasts = 6 * s.window
		}
		if one != nil {
			alone = append(alone, row{s, 1, *one})
		}
		if four != nil {
			shared = append(shared, row{s, 4, *four})
		}
	}
	standard := guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true}
	for _, algorithm := range []string{"gcra", "token-bucket", "fixed-window"} {
		add(weir(algorithm, standard), &bars{0, .98}, &bars{.005, .98})
	}
	add(express("express-rate-limit draft-8", expressOptions{StandardHeaders: "draft-8"}), &bars{0, .98}, &bars{.005, .98})
	x := weir("gcra", guard.Headers{})
	x.name += ", X-RateLimit"
	add(x, &bars{0, .98}, nil)
	for _, algorithm := range []string{"sliding-counter", "sliding-log", "sliding-window"} {
		add(weir(algorithm, standard), &bars{0, .95}, &bars{.02, .85})
	}
	legacy := express("express-rate-limit legacy, 60 s", expressOptions{LegacyHeaders: true})
	legacy.limit, legacy.window, legacy.lasts = 6*limit, 6*window, 3*6*window
	add(legacy, &bars{0, .97}, nil)
	add(chi(), &bars{.005, .90}, &bars{.02, .85})
	return append(alone, shared...)
}

// server is a limit and how it is served: by a handler, or by express-rate-limit.
type server struct {
	name    string
	limit   int
	window  time.Duration
	lasts   time.Duration // how long it is measured: a multiple of the time after which it admits the limit again
	handler func() (http.Handler, error)
	express *expressOptions
}

// authorization is the key of all servers.
const authorization = "Authorization"

func answer(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }

func weir(algorithm string, style guard.Headers) *server {
	s := &server{name: "weir " + algorithm, limit: limit, window: window}
	if algorithm == "sliding-window" {
		s.lasts = 6 * (window + window/10) // a sub-window counts until all of it is older than the window
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

func chi() *server {
	s := &server{name: "go-chi/httprate", limit: limit, window: window}
	s.handler = func() (http.Handler, error) {
		key := func(r *http.Request) (string, error) { return r.Header.Get(authorization), nil }
		return httprate.LimitBy(limit, window, key)(http.HandlerFunc(answer)), nil
	}
	return s
}

func express(name string, o expressOptions) *server {
	return &server{name: name, limit: limit, window: window, express: &o}
}

// pause returns how long each worker waits between requests, so that all together would send as eagerly as they should.
func (s *server) pause(processes int) time.Duration {
	rate := float64(s.limit) / s.window.Seconds()
	return time.Duration(float64(workers*processes) / (eager * rate) * float64(time.Second))
}

// outcome is the result of a row.
type outcome struct {
	row

	skipped string // why there is none
	sent    *tally
	greedy  *tally // of clients of the same server that do not obey, at the same time
}

// tally counts answers.
type tally struct {
	answers, admitted, refused, refusedLater int
	least                                    int            // what that process was admitted which was admitted least
	unsent                                   int            // requests whose turn did not come in time
	failed                                   map[string]int // by error, and by other statuses
}

func (t tally) share(of int) float64 { return float64(of) / math.Max(1, float64(t.answers)) }

func (o outcome) shareAdmitted() float64 {
	return float64(o.sent.admitted) / math.Max(1, float64(o.greedy.admitted))
}

// met reports whether the outcome clears the bars of its row.
func (o outcome) met() bool {
	return len(o.sent.failed)+len(o.greedy.failed) == 0 &&
		o.sent.share(o.sent.refusedLater) <= o.bars.refused && o.shareAdmitted() >= o.bars.admitted
}
