package main

import (
	"context"
	"errors"
	"net/http"
	"testing"
)

var errStatus = errors.New("another status than expected")

func middlewareSections() []section {
	var all []section
	for _, of := range []struct {
		chart, title, figure string
		limit                limit
		status               int
	}{
		{"middleware-allowed", "what an allowed request costs", "Time that is added to the bare handler", plenty(), http.StatusOK},
		{"middleware-refused", "what a refused request costs", "Time of the answer, less that of the bare handler's", few(), http.StatusTooManyRequests},
	} {
		for _, m := range middlewares {
			s := section{
				name: of.chart + "-" + m.framework, chart: of.chart, panel: m.framework, unit: nanoseconds,
				title: "Middleware in the process: " + of.title,
				note: "Counted by address, 256 of them, with three headers on the answer. " + of.figure + ". " +
					"By hand: x/time/rate in a sync.Map, which has no numbers for the headers and forgets no key.",
				subtract: bare, baseline: m.fastest,
			}
			for _, c := range m.all {
				s.rows = append(s.rows, c.row(of.limit, of.status))
			}
			all = append(all, s)
		}
	}
	return all
}

// row measures requests of one goroutine, all of which have that status.
func (m middleware) row(l limit, status int) row {
	return row{name: m.name, kind: m.kind, open: func(tb testing.TB, _ scale) slice {
		if m.name != bare {
			checkApp(tb, m.build(tb, few()), !m.without)
		} else {
			status = http.StatusOK
		}
		const addresses = 256
		ask := requests(tb.Context(), m.build(tb, l), addresses)
		for range 2 * few().rate {
			for i := range addresses {
				ask(i)
			}
		}
		return load{goroutines: 1, batch: 64, work: func(int) work {
			return func(_ context.Context, i int) (bool, error) {
				if ask(i%addresses).status != status {
					return false, errStatus
				}
				return status == http.StatusOK, nil
			}
		}}.run
	}}
}
