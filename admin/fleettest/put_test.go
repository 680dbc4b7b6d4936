package fleettest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
)

// outcome is the answer to a request, or to a job.
type outcome struct {
	admitted, failed bool // failed: refused because the store did not answer
	limit            int64
	retry            time.Duration
}

func (o outcome) refused() bool { return !o.admitted && !o.failed }

// customer is the key of all requests, and of the job.
const customer = "ip=127.0.0.1"

// asks makes a program of a kind: a framework or the job. It asks by the policy of the code, or by what Source says.
func asks(t *testing.T, kind, policy string, store core.Store, source follow.Source) func() outcome {
	t.Helper()
	if kind == "job" {
		l, err := enforce.New(store, core.MustParse(policy), enforce.Options{Source: source})
		require.NoError(t, err)
		return func() outcome {
			var over *enforce.OverLimitError
			var failed *core.StoreError
			err := l.Wait(t.Context(), customer, 1)
			switch {
			case errors.As(err, &over):
				// On trial, a job goes on all the same.
				return outcome{admitted: l.Policy().Options().Shadow, limit: over.Result.Limit, retry: over.Result.RetryAfter}
			case errors.As(err, &failed):
				return outcome{failed: true}
			}
			assert.NoError(t, err)
			res, _ := l.Peek(t.Context(), customer) // for the limit; a store that fails has none
			return outcome{admitted: true, limit: res.Limit}
		}
	}
	g, err := guard.New(guard.Config{Store: store, Source: source, Rule: guard.Rule{Policy: policy, Key: keyfunc.IP()}})
	require.NoError(t, err)
	url := frameworks[kind](t, g)
	return func() outcome {
		status, header, err := get(context.WithoutCancel(t.Context()), url)
		assert.NoError(t, err)
		limit, _ := strconv.ParseInt(header.Get("X-RateLimit-Limit"), 10, 64)
		retry, _ := strconv.Atoi(header.Get("Retry-After"))
		switch status {
		case http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		default:
			assert.Fail(t, "an answer of another status", status)
		}
		return outcome{
			admitted: status == http.StatusOK, failed: status == http.StatusServiceUnavailable,
			limit: limit, retry: time.Duration(retry) * time.Second,
		}
	}
}

// TestEachByPut: whatever a fleet may change is changed by a PUT, and seen by a request of each framework, and by a job.
func TestEachByPut(t *testing.T) {
	f := startFleet(t)
	kinds := []string{"job"}
	for kind := range frameworks {
		kinds = append(kinds, kind)
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			source := f.source(kind, redissource.Options{})
			store, err := redisstore.New(f.rdb, redisstore.Options{Prefix: kind, Deadline: patience})
			require.NoError(t, err)
			put := func(name string, p policies.Policy) { f.put(t, kind, name, p) }
			until := func(what string, ok func() bool) {
				t.Helper()
				require.Eventually(t, ok, patience, time.Millisecond, what)
			}

			t.Run("numbers", func(t *testing.T) {
				ask := asks(t, kind, "numbers: 1000/1h", store, source)
				put("numbers", policies.Policy{Text: "700/1h"})
				until("700/1h", func() bool { return ask().limit == 700 })
				put("numbers", policies.Policy{Text: "2000/1h"})
				until("2000/1h", func() bool { return ask().limit == 2000 })
			})
			t.Run("trial", func(t *testing.T) {
				ask := asks(t, kind, "trial: 1/1h", store, source)
				until("the code", func() bool { return ask().refused() })
				for range 2 {
					put("trial", policies.Policy{Text: "1/1h; shadow"})
					until("on trial", func() bool { return ask().admitted })
					for range 3 {
						assert.True(t, ask().admitted)
					}
					put("trial", policies.Policy{Text: "1/1h; shadow off"})
					until("enforced", func() bool { return ask().refused() })
				}
			})
			t.Run("fail word", func(t *testing.T) {
				counts := redistest.Single(t)
				rdb := counts.Client(t)
				store, err := redisstore.New(rdb, redisstore.Options{Prefix: kind})
				require.NoError(t, err)
				ask := asks(t, kind, "word: 1000/1h; fail closed", store, source)
				until("the store answers", func() bool { return ask().admitted })
				counts.Kill()
				until("closed, as the code says", func() bool { return ask().failed })
				put("word", policies.Policy{Text: "1000/1h; fail open"})
				until("open, while the store is dead", func() bool { return ask().admitted })
				put("word", policies.Policy{Text: "1000/1h; fail closed"})
				until("closed again", func() bool { return ask().failed })
				put("word", policies.Policy{Text: "1000/1h; fail local"})
				until("local", func() bool { return ask().admitted })
			})
			t.Run("wait", func(t *testing.T) {
				ask := asks(t, kind, "wait: 1/1s; wait 1ms", store, source)
				two := func() (admitted int) {
					first := make(chan outcome)
					go func() { first <- ask() }()
					for _, o := range []outcome{ask(), <-first} {
						if o.admitted {
							admitted++
						}
					}
					return admitted
				}
				until("the code", func() bool { return two() < 2 })
				put("wait", policies.Policy{Text: "1/1s; wait 1m"})
				until("longer", func() bool { return two() == 2 })
				assert.Equal(t, 2, two())
				put("wait", policies.Policy{Text: "1/1s; wait 1ms"})
				until("shorter", func() bool { return two() < 2 })
			})
			t.Run("epoch", func(t *testing.T) {
				ask := asks(t, kind, "epoch: 1/1h", store, source)
				for _, text := range []string{"1/1h; epoch 1", "1/1h; epoch 2"} {
					until("used up", func() bool { return ask().refused() })
					put("epoch", policies.Policy{Text: text})
					until("afresh", func() bool { return ask().admitted })
				}
			})
			t.Run("blocked", func(t *testing.T) {
				ask := asks(t, kind, "blocked: 1000/1h", store, source)
				assert.True(t, ask().admitted)
				put("blocked", policies.Policy{Keys: map[string]string{customer: follow.Blocked, "ip=127.0.0.2": "1/1h"}})
				until("blocked", func() bool { return ask().refused() })
				assert.Equal(t, time.Minute, ask().retry)
				_, err := f.admin.Delete(t.Context(), kind, "blocked", writeAnyway)
				require.NoError(t, err)
				until("as the code says", func() bool { return ask().admitted })
			})
			t.Run("one customer", func(t *testing.T) {
				ask := asks(t, kind, "one: 5/1h", store, source)
				until("used up", func() bool { return ask().refused() })
				put("one", policies.Policy{Keys: map[string]string{customer: "7000/1h"}})
				until("more", func() bool { o := ask(); return o.limit == 7000 })
				put("one", policies.Policy{Keys: map[string]string{customer: follow.Unlimited}})
				until("unlimited", func() bool { o := ask(); return o.admitted && o.limit == 0 })
				for range 10 {
					assert.True(t, ask().admitted)
				}
			})
		})
	}
}
