package main

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func endToEndSections() []section {
	const note = "A server, its clients with 64 connections, and Redis on one machine. Requests per second; by hand: the same handler " +
		"around different clients of Redis."
	var all []section
	for _, denied := range []bool{false, true} {
		chart, title := "http-many", "HTTP from end to end, 10 000 keys"
		if denied {
			chart, title = "http-denied", "HTTP from end to end, one key that is over its limit"
		}
		for _, f := range sites {
			s := section{
				name: chart + "-" + f.framework, chart: chart, panel: f.framework, title: title, note: note,
				unit: perSecond, baseline: bare, also: []string{"redis_rate by hand"}, serves: true,
			}
			at := new(servers)
			for _, c := range f.all {
				s.rows = append(s.rows, row{c.name, c.kind, func(tb testing.TB, size scale) slice {
					return c.open(tb, f.framework, at, denied, size)
				}})
			}
			all = append(all, s)
		}
	}
	return all
}

// open starts the site in a process of its own, and returns what loads it.
func (c site) open(tb testing.TB, framework string, at *servers, denied bool, size scale) slice {
	tb.Helper()
	t := serverTask{Framework: framework, Site: c.name, Redis: at.start(tb, redisLoad{}).addrs}
	start := func(l limit, prefix string, patient bool) (client, *process) {
		t.Rate, t.Period, t.Patient = l.rate, l.period, patient
		p := begin(tb, task{Server: &t})
		var address string
		require.NoError(tb, p.read(&address))
		return client{address, c.name + "-" + prefix + "-"}, p
	}
	if c.name != bare {
		checked, _ := start(few(), "check", true)
		checked.check(tb)
	}
	l, keys, status := lasting(), make([]string, size.many()), http.StatusOK
	if denied {
		l, keys, status = few(), keys[:1], http.StatusTooManyRequests
	}
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	measured, process := start(l, "load", false)
	if denied {
		measured.exhaust(tb, keys[0])
	}
	if c.name == bare {
		status = http.StatusOK
	}
	const connections = 64
	return func(ctx context.Context, d time.Duration) (sample, error) {
		conns := make([]*connection, connections)
		for i := range conns {
			var err error
			if conns[i], err = measured.connect(ctx); err != nil {
				return sample{}, err
			}
			defer conns[i].Close()
		}
		requests := make([][]byte, len(keys))
		for i, key := range keys {
			requests[i] = measured.request(key)
		}
		var before, after usageReport
		if err := process.ask("used", &before); err != nil {
			return sample{}, err
		}
		got, err := load{goroutines: connections, batch: 1, server: at.processorTime, work: func(g int) work {
			return func(_ context.Context, i int) (bool, error) {
				got, err := conns[g].ask(requests[(g*977+i*7919)%len(requests)])
				if err == nil && got != status {
					err = errStatus
				}
				return got == http.StatusOK, err
			}
		}}.run(ctx, d)
		if err != nil {
			return sample{}, err
		}
		if err := process.ask("used", &after); err != nil {
			return sample{}, err
		}
		// The process has served the warm-up as well, which takes an eighth of the time.
		share := float64(d) / float64(d+d/8)
		got.Client = time.Duration(float64(after.Processor-before.Processor) * share)
		got.Allocs = uint64(float64(after.Allocs-before.Allocs) * share)
		return got, nil
	}
}
