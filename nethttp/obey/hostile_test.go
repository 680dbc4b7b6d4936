package obey_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/nethttp/obey"
)

// hostile is a server that answers what it likes.
type hostile func(r *http.Request, n int64) (*http.Response, error)

// transport returns a Transport to the server.
func (h hostile) transport(t *testing.T, o obey.Options) *obey.Transport {
	t.Helper()
	var n atomic.Int64
	o.Next = roundTrip(func(r *http.Request) (*http.Response, error) { return h(r, n.Add(1)) })
	transport, err := obey.New(o)
	require.NoError(t, err)
	return transport
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// says returns an answer with a header, such as "RateLimit", `"a";r=1;t=1`.
func says(status int, header ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
	res.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	for i := 0; i < len(header); i += 2 {
		res.Header.Add(header[i], header[i+1])
	}
	return res
}

func send(ctx context.Context, transport http.RoundTripper) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server.test/", http.NoBody)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	res, err := transport.RoundTrip(r)
	if err == nil {
		err = res.Body.Close()
	}
	return time.Since(start), err
}

// Whatever a server says, the next request is sent or has its error within MaxWait.
func TestSenselessAnswers(t *testing.T) {
	t.Parallel()
	const maxWait = 30 * time.Second
	for _, header := range [][]string{
		{"Retry-After", "1000000000"},
		{"Retry-After", "99999999999999999999999"},
		{"Retry-After", "9223372036854775807"},
		{"Retry-After", "-1"},
		{"Retry-After", "1.5"},
		{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"},
		{"Retry-After", "Thu, 01 Jan 1970 00:00:00 GMT"},
		{"Retry-After", "0"},
		{"RateLimit-Policy", `"a";q=0;w=0`, "RateLimit", `"a";r=0;t=0`},
		{"RateLimit-Policy", `"a";q=1;w=999999999999999`, "RateLimit", `"a";r=0;t=999999999999999`},
		{"RateLimit-Policy", `"a";q=999999999999999;w=1`, "RateLimit", `"a";r=999999999999999;t=1`},
		{"RateLimit-Policy", `"a";q=10;w=10`, "RateLimit", `"a";r=1000;t=1000000000`},
		{"RateLimit-Policy", `"a";q=-10;w=-10`, "RateLimit", `"a";r=-1;t=-1`},
		{"RateLimit-Policy", `"a";q=10`, "RateLimit", `"a";r=0`},
		{"RateLimit", `"a";r=0;t=1000000000`},
		{"RateLimit", "limit=0, remaining=0, reset=0"},
		{"RateLimit", "limit=1, remaining=0, reset=1000000000"},
		{"RateLimit", strings.Repeat(`"a";r=0;t=1000000000, `, 100_000) + `"a"`},
		{"RateLimit", strings.Repeat("(", 8000)},
		{"RateLimit", "\x00\xff"},
		{"RateLimit-Limit", "10", "RateLimit-Remaining", "0", "RateLimit-Reset", "1000000000"},
		{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000000"},
		{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "99999999"},
		{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "253402300799"},
		{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1e9"},
		{"X-RateLimit-Limit", "0", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "0"},
		{"X-RateLimit-Remaining", "0"},
		{"X-RateLimit-Reset", "1000000000"},
		{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60", "Date", "Fri, 31 Dec 9999 23:59:59 GMT"},
	} {
		for _, status := range []int{200, 301, 429, 503} {
			name := strings.Join(header, " ")
			t.Run(fmt.Sprint(status, " ", name[:min(60, len(name))]), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					transport := hostile(func(*http.Request, int64) (*http.Response, error) {
						return says(status, header...), nil
					}).transport(t, obey.Options{MaxWait: maxWait})
					var all sync.WaitGroup
					for range 5 {
						all.Go(func() {
							for range 5 {
								took, err := send(t.Context(), transport)
								var wait *obey.WaitError
								assert.True(t, err == nil || errors.As(err, &wait), "%v", err)
								assert.LessOrEqual(t, took, maxWait)
							}
						})
					}
					all.Wait()
				})
			})
		}
	}
}

// A server that says something else each time: nothing breaks, and nobody waits longer than MaxWait.
func TestAnswersByChance(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			const maxWait, slowest = 30 * time.Second, 40 * time.Second
			var mu sync.Mutex
			chance := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test is repeated
			number := func() string {
				numbers := []string{"0", "1", "2", "10", "100", "1000", "60", "100000000", "1000000000", "-1", "x", ""}
				return numbers[chance.IntN(len(numbers))]
			}
			transport := hostile(func(r *http.Request, n int64) (*http.Response, error) {
				mu.Lock()
				took := time.Duration(chance.Int64N(int64(2 * time.Second)))
				if chance.IntN(50) == 0 {
					took = slowest
				}
				status := []int{200, 200, 200, 200, 429, 503, 302, 500}[chance.IntN(8)]
				lost := chance.IntN(20) == 0
				var header []string
				switch chance.IntN(6) {
				case 0:
					header = []string{"Retry-After", number()}
				case 1:
					header = []string{
						"RateLimit-Policy", fmt.Sprintf(`"a";q=%s;w=%s, "b";q=%s;w=%s`, number(), number(), number(), number()),
						"RateLimit", fmt.Sprintf(`"a";r=%s;t=%s, "b";r=%s;t=%s`, number(), number(), number(), number()),
					}
				case 2:
					header = []string{"X-RateLimit-Limit", number(), "X-RateLimit-Remaining", number(), "X-RateLimit-Reset", number()}
				case 3:
					header = []string{"RateLimit-Limit", number(), "RateLimit-Remaining", number(), "RateLimit-Reset", number()}
				case 4:
					header = []string{"RateLimit-Policy", `"a";q=10;w=1`, "RateLimit", fmt.Sprintf(`"a";r=%d;t=1`, 9-n%10)}
				}
				mu.Unlock()
				if err := pause(r.Context(), took); err != nil {
					return nil, err
				}
				if lost {
					return nil, io.ErrUnexpectedEOF
				}
				return says(status, header...), nil
			}).transport(t, obey.Options{MaxWait: maxWait, Waiting: 20})
			var all sync.WaitGroup
			var sent atomic.Int64
			for range 15 {
				all.Go(func() {
					for range 20 {
						ctx := t.Context()
						mu.Lock()
						hurry := chance.IntN(4) == 0
						patience := time.Duration(chance.Int64N(int64(10 * time.Second)))
						mu.Unlock()
						if hurry {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, patience)
							defer cancel()
						}
						took, err := send(ctx, transport)
						assert.LessOrEqual(t, took, maxWait+slowest, "seed %d: %v", seed, err)
						var wait *obey.WaitError
						switch {
						case err == nil:
							sent.Add(1)
						case errors.As(err, &wait), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.DeadlineExceeded):
						default:
							assert.NoError(t, err)
						}
					}
				})
			}
			all.Wait()
			assert.Positive(t, sent.Load())
		})
	}
}

// A server that makes up a hundred policies for each answer takes no memory.
func TestPoliciesMadeUp(t *testing.T) {
	t.Parallel()
	transport := hostile(func(_ *http.Request, n int64) (*http.Response, error) {
		var policies, limits []string
		for i := range 100 {
			policies = append(policies, fmt.Sprintf(`"%d-%d";q=1000000;w=1`, n, i))
			limits = append(limits, fmt.Sprintf(`"%d-%d";r=999999;t=1`, n, i))
		}
		return says(200, "RateLimit-Policy", strings.Join(policies, ", "), "RateLimit", strings.Join(limits, ", ")), nil
	}).transport(t, obey.Options{Observe: func(obey.Event) {}})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for range 100 {
		_, _ = send(t.Context(), transport)
	}
	before := heap()
	for range 500 {
		_, _ = send(t.Context(), transport)
	}
	assert.Less(t, heap(), before+4<<20)
}

// What cannot be read is reported once a key, though it comes each time, and the function may use the Transport.
func TestObserveOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transport *obey.Transport
		events := map[obey.Event]int{}
		transport = hostile(func(*http.Request, int64) (*http.Response, error) {
			return says(429, "Retry-After", "soon", "X-RateLimit-Remaining", "-7", "X-RateLimit-Limit", "1"), nil
		}).transport(t, obey.Options{Observe: func(e obey.Event) {
			events[e]++
			_, _ = send(t.Context(), transport)
		}})
		for range 100 {
			_, err := send(t.Context(), transport)
			require.NoError(t, err)
		}
		assert.NotEmpty(t, events)
		for e, n := range events {
			assert.Equal(t, 1, n, "%+v", e)
			assert.NotEmpty(t, e.Field)
			assert.Contains(t, e.Key, "server.test")
		}
	})
}

// Requests that fail, or whose sender panics, hold nobody up.
func TestRequestsThatFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		transport := hostile(func(_ *http.Request, n int64) (*http.Response, error) {
			switch {
			case n <= 100:
				return nil, io.ErrUnexpectedEOF
			case n <= 200:
				panic("the sender's own")
			}
			return says(200, "RateLimit-Policy", `"a";q=100;w=10`, "RateLimit", `"a";r=50;t=10`), nil
		}).transport(t, obey.Options{})
		for range 200 {
			func() {
				defer func() { _ = recover() }()
				took, err := send(t.Context(), transport)
				assert.Error(t, err)
				assert.Zero(t, took)
			}()
		}
		for range 20 {
			took, err := send(t.Context(), transport)
			require.NoError(t, err)
			assert.LessOrEqual(t, took, time.Second)
		}
	})
}

// An answer that forbids everything for a year holds its key for a day, and no other one. Callers have their error at
// once.
func TestForbiddenForAYear(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		transport := hostile(func(r *http.Request, _ int64) (*http.Response, error) {
			if r.Header.Get("Authorization") == "Bearer bad" {
				return says(429, "Retry-After", "31536000"), nil
			}
			return says(200), nil
		}).transport(t, obey.Options{})
		get := func(credential string) (time.Duration, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server.test/", http.NoBody)
			require.NoError(t, err)
			r.Header.Set("Authorization", credential)
			start := time.Now()
			res, err := transport.RoundTrip(r)
			if err == nil {
				err = res.Body.Close()
			}
			return time.Since(start), err
		}
		_, err := get("Bearer bad")
		require.NoError(t, err)
		took, err := get("Bearer bad")
		var wait *obey.WaitError
		require.ErrorAs(t, err, &wait)
		assert.Zero(t, took, "at once")
		assert.Equal(t, 24*time.Hour, wait.Wait.Round(time.Second))
		for range 100 {
			took, err := get("Bearer good")
			require.NoError(t, err)
			assert.Zero(t, took)
		}
		<-time.After(24*time.Hour + time.Second)
		_, err = get("Bearer bad")
		require.NoError(t, err, "it is tried again after a day")
	})
}

// Requests that hang before a server has ever answered hold up the others for a while, not for as long as they hang.
func TestRequestsThatHang(t *testing.T) {
	t.Parallel()
	for name, answered := range map[string]bool{"from the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				type hangs struct{}
				transport := hostile(func(r *http.Request, _ int64) (*http.Response, error) {
					if r.Context().Value(hangs{}) != nil {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return says(200, "RateLimit-Policy", `"a";q=100;w=10`, "RateLimit", `"a";r=90;t=10`), nil
				}).transport(t, obey.Options{})
				if answered {
					_, err := send(t.Context(), transport)
					require.NoError(t, err)
				}
				hang, cancel := context.WithCancel(context.WithValue(t.Context(), hangs{}, true))
				var all sync.WaitGroup
				for range 10 {
					all.Go(func() { _, _ = send(hang, transport) })
				}
				<-time.After(5 * time.Second)
				var ok int
				for range 20 {
					took, err := send(t.Context(), transport)
					assert.LessOrEqual(t, took, 30*time.Second)
					if err == nil {
						ok++
					}
				}
				assert.GreaterOrEqual(t, ok, 19)
				cancel()
				all.Wait()
			})
		})
	}
}
