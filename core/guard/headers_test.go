package guard_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// answering is a store with one answer.
type answering struct {
	core.Store
	res core.Result
	err error
	key string // that it was last asked for
}

func (a *answering) Take(_ context.Context, t core.Take) (core.Result, error) {
	a.key = t.Key
	return a.res, a.err
}

// allHeaders are the names that SetHeaders may write.
var allHeaders = []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After", "Cache-Control", "Content-Type"}

// assertHeaders demands the values of all headers, in the order of allHeaders; ""
// is an absent one.
func assertHeaders(t *testing.T, want [6]string, h header, name string) {
	t.Helper()
	var got [6]string
	for i, header := range allHeaders {
		got[i] = h[header]
		delete(h, header)
	}
	if want[5] != "" { // a body, in a form that the client accepts
		assert.Equal(t, "Accept", h["Vary"], name)
		delete(h, "Vary")
	}
	assert.Equal(t, want, got, name)
	assert.Empty(t, h, "%s: other headers", name)
}

// Seconds are rounded up, so that a client that waits for as long as they say is not refused again.
func TestSetHeaders(t *testing.T) {
	const us, text = time.Microsecond, "text/plain; charset=utf-8"
	store := &answering{}
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/10s, 1000/1h"}, Store: store, Log: slog.New(new(records))})
	admitted := func(limit, remaining int64, reset time.Duration, at int64) core.Result {
		return core.Result{Outcome: core.Admitted, Limit: limit, Remaining: remaining, ResetAfter: reset, At: at}
	}
	refused := func(retry time.Duration) core.Result {
		return core.Result{Limit: 10, RetryAfter: retry, ResetAfter: 10 * time.Second, At: epoch}
	}
	for _, c := range []struct {
		name string
		res  core.Result
		err  error
		want [6]string
	}{
		{"admitted", admitted(10, 9, time.Second, epoch), nil, [6]string{"10", "9", "1800000001"}},
		{"the other limit", admitted(1000, 0, time.Hour, epoch), nil, [6]string{"1000", "0", "1800003600"}},
		{"a burst of no limit", admitted(7, 0, time.Hour, epoch), nil, [6]string{"7", "0", "1800003600"}},
		{"unused", admitted(10, 10, 0, epoch), nil, [6]string{"10", "10", "1800000000"}},
		{"reset rounded up", admitted(10, 9, us, epoch), nil, [6]string{"10", "9", "1800000001"}},
		{"the clock rounded up with it", admitted(10, 9, us, epoch+999_999), nil, [6]string{"10", "9", "1800000001"}},
		{"just beyond", admitted(10, 9, 2*us, epoch+999_999), nil, [6]string{"10", "9", "1800000002"}},
		{"at the limit", core.Result{Outcome: core.AtLimit, Limit: 10, ResetAfter: 10 * time.Second, At: epoch}, nil, [6]string{"10", "0", "1800000010"}},
		{"refused, at least 1", refused(us), nil, [6]string{"10", "0", "1800000010", "1", "no-store", text}},
		{"refused, exactly 1", refused(time.Second), nil, [6]string{"10", "0", "1800000010", "1", "no-store", text}},
		{"refused, rounded up", refused(time.Second + us), nil, [6]string{"10", "0", "1800000010", "2", "no-store", text}},
		{"refused, 10", refused(10 * time.Second), nil, [6]string{"10", "0", "1800000010", "10", "no-store", text}},
		{"never", core.Result{Outcome: core.Never, Limit: 10, Remaining: 4, ResetAfter: 6 * time.Second, At: epoch}, nil, [6]string{"10", "4", "1800000006", "", "no-store", text}},
		{"left", core.Result{}, context.Canceled, [6]string{"", "", "", "", "no-store", text}},
	} {
		store.res, store.err = c.res, c.err
		v := g.Check(from(alice))
		h := header{}
		v.SetHeaders(h)
		assertHeaders(t, c.want, h, c.name)
	}
	store.err = down()
	for policy, want := range map[string][6]string{
		"open: 1/1h; fail open":     {},
		"closed: 1/1h; fail closed": {"", "", "", "1", "no-store", text},
	} {
		g, err := g.WithRule(guard.Rule{Policy: policy})
		require.NoError(t, err)
		v := g.Check(from(alice))
		h := header{}
		v.SetHeaders(h)
		assertHeaders(t, want, h, policy)
	}
	for noKey, want := range map[guard.NoKey][6]string{
		guard.NoKeyPass:   {},
		guard.NoKeyRefuse: {"", "", "", "", "no-store", text},
	} {
		g, err := g.WithRule(guard.Rule{Policy: "user: 1/1h", Key: keyfunc.User("uid"), NoKey: noKey})
		require.NoError(t, err)
		v := g.Check(from(alice))
		h := header{}
		v.SetHeaders(h)
		assertHeaders(t, want, h, "no key")
	}
}

// Of two guards the headers show the tightest, whole; there is one value of each.
func TestSetHeadersMerges(t *testing.T) {
	store := &answering{}
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/10s"}, Store: store})
	const reset = "1800000005"
	for _, c := range []struct {
		name    string
		outer   [3]string
		outcome core.Outcome
		want    [3]string
	}{
		{"alone", [3]string{}, core.Admitted, [3]string{"10", "5", reset}},
		{"outer has less", [3]string{"100", "4", "1800000001"}, core.Admitted, [3]string{"100", "4", "1800000001"}},
		{"outer has more", [3]string{"100", "6", "1800009999"}, core.Admitted, [3]string{"10", "5", reset}},
		{"as much, outer later", [3]string{"100", "5", "1800000006"}, core.Admitted, [3]string{"100", "5", "1800000006"}},
		{"as much, outer sooner", [3]string{"100", "5", "1800000004"}, core.Admitted, [3]string{"10", "5", reset}},
		{"equal", [3]string{"100", "5", reset}, core.Admitted, [3]string{"100", "5", reset}},
		{"a refusal before all", [3]string{"100", "0", "1800009999"}, core.Refused, [3]string{"10", "5", reset}},
		{"foreign limit alone", [3]string{"100", "", ""}, core.Admitted, [3]string{"10", "5", reset}},
		{"foreign remaining", [3]string{"100", "none", reset}, core.Admitted, [3]string{"10", "5", reset}},
		{"foreign reset", [3]string{"100", "0", "Thu, 01 Jan 2026 00:00:00 GMT"}, core.Admitted, [3]string{"10", "5", reset}},
		{"foreign list", [3]string{"100, 100;w=60", "0, 0", "1"}, core.Admitted, [3]string{"10", "5", reset}},
	} {
		h := header{}
		for i, value := range c.outer {
			if value != "" {
				h[allHeaders[i]] = value
			}
		}
		store.res = core.Result{Outcome: c.outcome, Limit: 10, Remaining: 5, ResetAfter: 5 * time.Second, At: epoch}
		v := g.Check(from(alice))
		v.SetHeaders(h)
		assert.Equal(t, c.want, [3]string{h[allHeaders[0]], h[allHeaders[1]], h[allHeaders[2]]}, c.name)
	}
}

func TestStoreError(t *testing.T) {
	gone := errors.New("gone")
	err := &core.StoreError{Class: core.ClassTimeout, Err: gone}
	require.EqualError(t, err, "store failed (timeout, surely not executed): gone")
	err.MaybeExecuted = true
	require.EqualError(t, err, "store failed (timeout, maybe executed): gone")
	require.ErrorIs(t, err, gone)
}
