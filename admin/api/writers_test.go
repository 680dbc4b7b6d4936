package api_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// lines keeps what several admins write to their standard output.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// Two hundred people change one policy at once through two admins, some of them by a revision that is over: each change
// that is accepted is a revision, a row of the audit and a link of its chain, no other is, and each answer is 200 or 412.
func TestTwoHundredWriters(t *testing.T) { sqltest.Each(t, twoHundredWriters) }

func twoHundredWriters(t *testing.T, location string) {
	const writers, turns = 200, 3
	var said lines
	var records []*record.Record
	var logs []*audit.Log
	var handlers []http.Handler
	for range 2 {
		db := sqltest.Open(t, location)
		log := audit.New(db, audit.Options{Lines: &said})
		t.Cleanup(func() { assert.NoError(t, log.Close()) })
		r := record.New(db, log)
		manager, err := manage.New(manage.Options{
			Record: r, Audit: log, Publisher: &quiet{},
			Services: func(context.Context, string) ([]*policies.Process, int, error) { return nil, 0, nil },
		})
		require.NoError(t, err)
		handler, err := api.New(api.Options{Manager: manager, Authenticate: func(r *http.Request) (*rights.Person, error) {
			name := r.Header.Get("Authorization")
			return &rights.Person{ID: "local:" + name, Name: name, Roles: map[string]rights.Role{"pay": rights.Owner}}, nil
		}})
		require.NoError(t, err)
		records, logs, handlers = append(records, r), append(logs, log), append(handlers, handler)
	}
	send := func(via int, who, method, condition, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), method, "/v1/apps/pay/policies/api", strings.NewReader(body))
		request.Header.Set(adminapi.HeaderReason, "by "+who)
		request.Header.Set("Authorization", who)
		if name, value, ok := strings.Cut(condition, ": "); ok {
			request.Header.Set(name, value)
		}
		if body != "" {
			request.Header.Set("Content-Type", "application/json")
		}
		handlers[via%2].ServeHTTP(w, request)
		return w
	}
	put := func(i int, condition, text string) *httptest.ResponseRecorder {
		return send(i, fmt.Sprint("p", i), http.MethodPut, condition, `{"text":"`+text+`"}`)
	}
	first := put(0, "If-None-Match: *", "1/1h")
	require.Equal(t, http.StatusOK, first.Code, first.Body)

	type accepted struct{ text, who string }
	var mu sync.Mutex
	all := map[int64]accepted{1: {"1/1h", "p0"}}
	answers := map[int]int{}
	var work sync.WaitGroup
	for i := range writers {
		work.Go(func() {
			for n := range turns {
				read := send(i, fmt.Sprint("p", i), http.MethodGet, "", "")
				if !assert.Equal(t, http.StatusOK, read.Code, read.Body) {
					return
				}
				tag, stale := read.Header().Get("ETag"), i%4 == 3
				switch i % 4 {
				case 0:
					tag = "*" // whatever there is
				case 3:
					tag = `"999999"` // which there never is
				}
				text := fmt.Sprintf("%d/1h", 2+i*turns+n)
				w := put(i, "If-Match: "+tag, text)
				mu.Lock()
				answers[w.Code]++
				if w.Code == http.StatusOK {
					revision, err := strconv.ParseInt(strings.Trim(w.Header().Get("ETag"), `"`), 10, 64)
					assert.NoError(t, err)
					assert.False(t, stale, "a stale revision was accepted")
					assert.NotContains(t, all, revision, "a revision was given twice")
					all[revision] = accepted{text, fmt.Sprint("p", i)}
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	assert.Equal(t, writers*turns, answers[http.StatusOK]+answers[http.StatusPreconditionFailed], "%v", answers)
	assert.GreaterOrEqual(t, answers[http.StatusOK], writers*turns/4, "those who write over whatever there is")
	t.Logf("answers: %v", answers)

	// The history, the audit and its chain have what was accepted, and nothing else.
	history := map[int64]accepted{}
	past, err := records[0].History(t.Context(), "pay", "api", 0, 10_000)
	require.NoError(t, err)
	for _, p := range past {
		history[p.Revision] = accepted{p.Policy.Text, p.By.Name}
	}
	assert.Equal(t, all, history)
	rows := map[int64]accepted{}
	for before := int64(0); ; {
		page, err := logs[1].List(t.Context(), audit.Filter{Before: before})
		require.NoError(t, err)
		for _, r := range page {
			rows[r.Revision] = accepted{all[r.Revision].text, r.By.Name}
			assert.Equal(t, "by "+r.By.Name, r.Reason)
			assert.Contains(t, r.Detail, `"`+all[r.Revision].text+`"]`, "of revision %d", r.Revision)
		}
		if len(page) < audit.MaxLimit {
			break
		}
		before = page[len(page)-1].Seq
	}
	assert.Equal(t, all, rows)
	links, err := audit.Links(&said.text)
	require.NoError(t, err)
	assert.Len(t, links, len(all))
	report, err := logs[0].Verify(t.Context(), links...)
	require.NoError(t, err)
	assert.Nil(t, report.Fault)
	assert.Equal(t, int64(len(all)), report.Rows)
	p, revision, err := records[1].Policy(t.Context(), "pay", "api")
	require.NoError(t, err)
	assert.Equal(t, slices.Max(slices.Collect(maps.Keys(all))), revision)
	assert.Equal(t, all[revision].text, p.Text)
}
