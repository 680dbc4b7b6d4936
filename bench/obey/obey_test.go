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
		e := exchange{Sent: int64(1e15 + 1e6*i), Status: 200}
		if i == 9 || i >= 10 && i%3 == 0 {
			e.Status = 429
		}
		processes[i%2] = append(processes[i%2], e)
	}
	r := row{server: server{limit: 10, window: 10 * time.Second, burst: 5}, lasts: 20 * time.Second, bars: &bars{refused: .15, admitted: .64}}
	o := count(r, processes[:])
	assert.Equal(t, []int{20, 16, 4, 3}, []int{o.answers, o.admitted, o.refused, o.refusedLater})
	assert.InDelta(t, 3./20, o.shareRefused(), 1e-9)
	assert.InDelta(t, 16./25, o.shareAdmitted(), 1e-9)
	assert.True(t, o.met())

	r.bars = &bars{refused: .14, admitted: .64}
	assert.False(t, count(r, processes[:]).met(), "too many refusals")
	r.bars = &bars{refused: .15, admitted: .65}
	assert.False(t, count(r, processes[:]).met(), "too few admitted")

	r.lasts, r.bars = 15*time.Second, &bars{refused: 1}
	assert.Equal(t, 15, count(r, processes[:]).answers, "what is sent later is not counted")
	processes[0] = append(processes[0], exchange{Error: "connection reset"})
	o = count(r, processes[:])
	assert.Equal(t, map[string]int{"connection reset": 1}, o.failed)
	assert.False(t, o.met(), "a request has failed")
}

func TestReport(t *testing.T) {
	good := count(row{name: "good", lasts: time.Second, server: server{limit: 1, window: time.Second}, bars: &bars{}},
		[][]exchange{{{Sent: 1, Status: 200}}})
	missed := good
	missed.name, missed.bars = "missed", &bars{admitted: 1.1}
	left := outcome{row: row{name: "left out"}, skipped: "no node"}

	var out strings.Builder
	require.NoError(t, report(&out, []outcome{good, left}))
	assert.Contains(t, out.String(), "skipped: no node")
	require.EqualError(t, report(&out, []outcome{good, missed, left}), "1 of 3 rows have missed a bar")
	assert.Contains(t, out.String(), "NO")
}
