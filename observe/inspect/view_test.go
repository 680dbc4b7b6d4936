package inspect

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

var now = time.Date(2026, 11, 23, 3, 4, 5, 0, time.UTC)

// outage is a page of a Cluster one of whose masters is gone.
func outage() *page {
	good := traffic{RoundTrip: inSeconds(420 * time.Microsecond), Flights: 100, Calls: 900, Merged: 20}
	return &page{
		Program: "api-7:4711", At: now, Start: now.Add(-3 * time.Hour), Deadline: inSeconds(50 * time.Millisecond),
		Servers: []server{
			{Addr: "10.0.0.1:6379", Decisions: good},
			{Addr: "10.0.0.3:6379", Since: now.Add(-173 * time.Second), Last: now, Class: core.ClassDown, Local: 48210, Closed: 312, Decisions: traffic{
				BreakerOpen: true, BreakerSince: now.Add(-172 * time.Second), BreakerClass: core.ClassDown, Flights: 40, Failures: 12, Calls: 41,
			}},
			{Addr: "10.0.0.2:6379", Decisions: good},
		},
		Lanes: []lane{{Name: "renewals"}, {Name: "refunds", Pending: 3, Oldest: inSeconds(300 * time.Millisecond)}},
	}
}

// The first lines say what is wrong, where, since when, and who decides meanwhile.
func TestFirstScreen(t *testing.T) {
	t.Parallel()
	p := outage()
	p.diagnose()
	assert.False(t, p.Well)
	text := p.view().text()
	want := `api-7:4711 at 2026-11-23 03:04:05 UTC, up 3h0m0s

THE STORE IS NOT WELL: 1 of its 3 servers has trouble
  ! 10.0.0.3:6379 fails (down): nothing listens there, or it says that it cannot serve; since 03:01:12 (2m53s)
    it is asked twice a second, by one flight, until it answers; then all goes on by itself
    meanwhile the fail word of each policy decides: 48210 by this process for itself (fail local), 312 by refusing (fail closed)
    2 other servers answer, for their keys all is as ever
    see docs/when-redis-fails.md#which-fault-is-it

STORE
`
	require.Greater(t, len(text), len(want))
	assert.Equal(t, want, text[:len(want)])
}

// Each state of a server looks different.
func TestStates(t *testing.T) {
	t.Parallel()
	ms := func(n int) seconds { return inSeconds(time.Duration(n) * time.Millisecond) }
	for name, c := range map[string]struct {
		server      server
		state, kind string
		says        string
	}{
		"answers":       {server{Decisions: traffic{Flights: 1, RoundTrip: ms(1)}}, answers, "", ""},
		"unknown":       {server{}, unknown, "", ""},
		"slow":          {server{Decisions: traffic{Flights: 1, RoundTrip: ms(30)}}, slow, "slow", "is slow: a round trip takes 30ms, and a decision has 50ms"},
		"too slow":      {server{Since: now, Class: core.ClassTimeout, Behind: traffic{Flights: 1, RoundTrip: ms(120)}}, fails, "slow", "is slow, so that decisions fail (timeout): a round trip takes 120ms, and a decision has 50ms"},
		"hangs":         {server{Since: now, Class: core.ClassTimeout, Decisions: traffic{BreakerOpen: true, BreakerSince: now}}, notAsked, "store", "it hangs, or the network does"},
		"out of memory": {server{Since: now, Class: core.ClassOOM, Decisions: traffic{Flights: 1}}, fails, "store", "it is out of memory"},
		"busy":          {server{Since: now, Class: core.ClassBusy, Decisions: traffic{Flights: 1}}, fails, "busy", "this process asks for more"},
		"no right":      {server{Since: now, Class: core.ClassDenied, Decisions: traffic{Flights: 1}}, fails, "store", "a right is missing"},
		"behind": {
			server{Decisions: traffic{Flights: 1}, Behind: traffic{BreakerOpen: true, BreakerSince: now, BreakerClass: core.ClassTimeout}},
			answers,
			"background", "what no request waits for",
		},
		"a class of another store": {server{Since: now, Class: "bad-luck", Decisions: traffic{Flights: 1}}, fails, "store", "the log has its error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &page{At: now, Deadline: ms(50), Servers: []server{c.server}}
			p.diagnose()
			assert.Equal(t, c.state, p.Servers[0].State)
			if c.kind == "" {
				assert.Empty(t, p.Causes)
				assert.True(t, p.Well)
				return
			}
			require.Len(t, p.Causes, 1)
			assert.Equal(t, c.kind, p.Causes[0].Kind)
			assert.Contains(t, p.Causes[0].What, c.says)
			assert.False(t, p.Well)
		})
	}
}

// What anybody may have written stays text: in HTML, in a terminal, and in JSON.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	for _, hostile := range []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</style><script>", "a\x1b[31mb\x1b]0;title\x07", "a\nfake line\r", "\u202eright to left",
		"\xff\xfe", "{{.}}", "javascript:alert(1)", strings.Repeat("x", 1<<20), strings.Repeat("é", 1000), "<" + strings.Repeat("\x00", 1000),
	} {
		m := newMasker(true)
		p := outage()
		p.Policies = []policy{{Name: hostile, RefusedSum: 3, Sum: 4, By: []share{{hostile, 3}}, Refused: rate{5, 5, 0.1}}}
		p.Guards = []rules{{Revision: hostile, Rules: []rule{{Route: clip(hostile), Place: clip(hostile), Policy: clip(hostile), Key: clip(hostile), OverLimit: clip(hostile)}}}}
		p.Worst = []worst{{Policy: hostile, Callers: []caller{{Key: m.key(hostile), Least: 1, Most: 2, Since: now}}}}
		for range fewest {
			p.Refusals = append(p.Refusals, refusal{At: now, Policy: hostile, Rule: clip(hostile), Route: clip(hostile), Tier: clip(hostile), Key: m.key(hostile), hash: "x"})
		}
		p.Servers[1].Addr = clip(hostile)
		p.diagnose()
		h := &handler{program: "x"}
		html := record(func(w http.ResponseWriter) { h.html(w, http.StatusOK, &content{View: p.view()}) })
		body := html[strings.Index(html, "<body>"):]
		assert.NotContains(t, body, "<script")
		assert.NotContains(t, body, "<img")
		assert.NotContains(t, body, "style>")
		assert.NotContains(t, body, `href="javascript`)
		assert.Less(t, len(html), 1<<20)
		form := record(func(w http.ResponseWriter) {
			f := &form{Policy: hostile, Tier: hostile, Key: hostile, Cost: hostile, Mistake: hostile, Answer: hostile, Policies: []string{hostile}}
			h.html(w, http.StatusOK, &content{View: p.view(), Form: f})
		})
		assert.NotContains(t, form[strings.Index(form, "<body>"):], "<script")
		assert.NotContains(t, form[strings.Index(form, "<body>"):], "<img")
		text := p.view().text()
		for _, r := range text {
			require.True(t, r == '\n' || r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f) && r != 0x202e, "%q in the text of %.40q", r, hostile)
		}
		assert.NotContains(t, text, "\nfake line")
		assert.True(t, utf8.ValidString(text))
		data, err := json.Marshal(p)
		require.NoError(t, err)
		assert.NotContains(t, string(data), "<script")
	}
}

// record returns the body that serve writes.
func record(serve func(http.ResponseWriter)) string {
	w := httptest.NewRecorder()
	serve(w)
	return w.Body.String()
}

// Work that is stuck because its server fails is no second cause.
func TestStuckBecauseOfTheStore(t *testing.T) {
	t.Parallel()
	p := outage()
	p.Lanes[0].Oldest, p.Lanes[0].Pending = 30, 4
	p.diagnose()
	last := p.Causes[len(p.Causes)-1]
	assert.Equal(t, "background", last.Kind)
	assert.False(t, last.Grave)
	assert.Contains(t, last.More, "it follows from the store, and goes on when that answers again")
	p = &page{At: now, Lanes: p.Lanes}
	p.diagnose()
	assert.True(t, p.Causes[0].Grave)
}
