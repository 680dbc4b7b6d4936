package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
)

var errStatus = errors.New("another status than expected")

func middlewareSections() []section {
	var all []section
	for _, refused := range []bool{false, true} {
		chart, title, l, status := "middleware-allowed", "Middleware in the process: what an allowed request costs", plenty(), http.StatusOK
		if refused {
			chart, title, l, status = "middleware-refused", "Middleware in the process: what a refused request costs", few(), http.StatusTooManyRequests
		}
		for _, m := range middlewares {
			s := section{
				name: chart + "-" + m.framework, chart: chart, panel: m.framework, title: title, unit: nanoseconds,
				note: "Counted by address, 256 of them, with three headers on the answer. Time that is added to the bare handler. " +
					"By hand: x/time/rate in a sync.Map, which has no numbers for the headers and forgets no key.",
				subtract: bare, baseline: m.fastest,
			}
			if refused {
				s.note = strings.Replace(s.note, "Time that is added to the bare handler", "Time of the answer, less that of the bare handler's", 1)
			}
			for _, c := range m.all {
				s.rows = append(s.rows, c.row(l, status))
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
