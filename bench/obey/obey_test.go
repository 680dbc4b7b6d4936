package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A row counts what went out in its time, by all processes, and forgives the first ten answers.
func TestCount(t *testing.T) {
	var processes [2][]exchange
	for i := range 20 { // one each second, of which the 10th and each third from the 11th on are refused
		e := exchange{Sent: int64(1_000_000_000 + 1_000_000*i), Status: 200}
		if i == 9 || i >= 10 && i%3 == 0 {
			e.Status = 429
		}
		processes[i%2] = append(processes[i%2], e)
	}
	lasts := 20 * time.Second
	sent := count(lasts, processes[:])
	assert.Equal(t, tally{answers: 20, admitted: 16, refused: 4, refusedLater: 3, least: 8, failed: map[string]int{}}, sent)
	o := outcome{sent: &sent, greedy: &tally{admitted: 25}}
	assert.InDelta(t, 3./20, sent.share(sent.refusedLater), 1e-9)
	assert.InDelta(t, 16./25, o.shareAdmitted(), 1e-9)

	for _, c := range []struct {
		bars bars
		met  bool
	}{{bars{.15, .64}, true}, {bars{.14, .64}, false}, {bars{.15, .65}, false}} {
		o.bars = c.bars
		assert.Equal(t, c.met, o.met(), "%+v", c.bars)
	}
	assert.Equal(t, 15, count(15*time.Second, processes[:]).answers, "what is sent later is not counted")

	processes[0] = append(processes[0], exchange{Error: "connection reset"}, exchange{Error: "no turn in time", Unsent: true})
	sent = count(lasts, processes[:])
	assert.Equal(t, map[string]int{"connection reset": 1}, sent.failed)
	assert.Equal(t, 1, sent.unsent)
	o.bars = bars{1, 0}
	assert.False(t, o.met(), "a request has failed")
}

func TestReport(t *testing.T) {
	sent := tally{answers: 10, admitted: 10}
	good := outcome{row: row{&server{name: "good"}, 1, bars{0, 1}}, sent: &sent, greedy: &sent}
	missed := outcome{row: row{&server{name: "missed"}, 4, bars{0, 1.1}}, sent: &sent, greedy: &sent}
	left := outcome{row: row{server: &server{name: "left out"}}, skipped: "no node"}

	var out strings.Builder
	require.NoError(t, report(&out, []outcome{good, left}))
	assert.Contains(t, out.String(), "skipped: no node")
	assert.Contains(t, out.String(), "good, without obey")
	require.EqualError(t, report(&out, []outcome{good, missed, left}), "1 of 3 rows have missed a bar")
	assert.Contains(t, out.String(), "NO")
}
