package obey_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/nethttp/obey"
)

// body notes whether it was closed, and how much of it was read.
type body struct {
	io.Reader
	read   int
	closed bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

func text(s string) *body { return &body{Reader: strings.NewReader(s)} }

// roundTripper is a function that sends requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a response with fields, as in "Retry-After: 1".
func answer(status int, b io.ReadCloser, fields ...string) *http.Response {
	h := http.Header{}
	for _, line := range fields {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return &http.Response{StatusCode: status, Header: h, Body: b}
}

func transport(t *testing.T, o obey.Options) *obey.Transport {
	t.Helper()
	tr, err := obey.New(o)
	require.NoError(t, err)
	return tr
}

func request(t *testing.T, method string, b io.Reader, fields ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://api.example.com/items", b)
	require.NoError(t, err)
	for _, line := range fields {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func TestOptions(t *testing.T) {
	for text, o := range map[string]obey.Options{
		"Waiting is -1":                       {Waiting: -1},
		"Repeat is -1":                        {Repeat: -1},
		`the policy "open: 5 concurrent" has`: {Limiter: limiter(t, "open: 5 concurrent")},
	} {
		_, err := obey.New(o)
		require.ErrorContains(t, err, text)
	}
}

func limiter(t *testing.T, policy string) *enforce.Limiter {
	t.Helper()
	l, err := enforce.New(nil, core.MustParse(policy), enforce.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// The body of a request is closed on every path on which it is not sent, and the request stays as it was.
func TestBodyIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := roundTripper(func(r *http.Request) (*http.Response, error) {
			r.Body.Close()
			return answer(429, text(""), "Retry-After: 3600"), nil
		})
		tr := transport(t, obey.Options{Next: refuse})
		send := func(ctx context.Context) error {
			b := text("hello")
			r := request(t, http.MethodPost, b, "Authorization: secret").WithContext(ctx)
			before := fmt.Sprint(r.Header, r.URL, r.Method, r.ContentLength)
			res, err := tr.RoundTrip(r) //nolint:bodyclose // of a test, with nothing behind it
			require.Equal(t, before, fmt.Sprint(r.Header, r.URL, r.Method, r.ContentLength))
			require.Same(t, b, r.Body)
			require.True(t, b.closed)
			require.Equal(t, err == nil, res != nil)
			return err
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, send(ended), context.Canceled)
		require.NoError(t, send(t.Context()))
		var tooLate *obey.WaitError
		require.ErrorAs(t, send(t.Context()), &tooLate)
		require.Contains(t, tooLate.Key, "http://api.example.com#")
		require.NotContains(t, tooLate.Key, "secret")

		tr = transport(t, obey.Options{Next: refuse, Limiter: limiter(t, "mine: 1/1h")})
		require.NoError(t, send(t.Context()))
		var over *enforce.OverLimitError
		require.ErrorAs(t, send(t.Context()), &over)
		require.Equal(t, time.Hour, over.Result.RetryAfter)
	})
}

// Errors and panics of Next end the turn.
func TestTurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("connection reset")
		n := 0
		tr := transport(t, obey.Options{Next: roundTripper(func(*http.Request) (*http.Response, error) {
			if n++; n%2 == 0 {
				panic("no")
			}
			return nil, broken
		})})
		start := time.Now()
		for range 20 {
			_, err := tr.RoundTrip(request(t, http.MethodGet, nil)) //nolint:bodyclose // of a test, with nothing behind it
			require.ErrorIs(t, err, broken)
			require.Panics(t, func() { _, _ = tr.RoundTrip(request(t, http.MethodGet, nil)) }) //nolint:bodyclose // there is none
		}
		require.Zero(t, time.Since(start))
	})
}

// The refusal of one credential, host or key delays no other.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		refuse := roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Authorization") == "Bearer spent" || strings.HasPrefix(r.URL.Path, "/spent") {
				return answer(429, text(""), "Retry-After: 20"), nil
			}
			return answer(200, text("")), nil
		})
		send := func(tr *obey.Transport, r *http.Request) time.Duration {
			_, err := tr.RoundTrip(r) //nolint:bodyclose // of a test, with nothing behind it
			require.NoError(t, err)
			return time.Since(start)
		}
		tr := transport(t, obey.Options{Next: refuse})
		require.Zero(t, send(tr, request(t, http.MethodGet, nil, "Authorization: Bearer spent")))
		require.Zero(t, send(tr, request(t, http.MethodGet, nil, "Authorization: Bearer fresh")))
		require.Zero(t, send(tr, request(t, http.MethodGet, nil)))
		other := request(t, http.MethodGet, nil, "Authorization: Bearer spent")
		other.URL.Host = "other.example.com"
		require.Zero(t, send(tr, other))
		require.Equal(t, 20*time.Second, send(tr, request(t, http.MethodGet, nil, "Authorization: Bearer spent")))

		tr = transport(t, obey.Options{Next: refuse, Key: func(r *http.Request) string { return r.URL.Path }})
		spent := request(t, http.MethodGet, nil)
		spent.URL.Path = "/spent"
		require.Equal(t, 20*time.Second, send(tr, spent))
		require.Equal(t, 20*time.Second, send(tr, request(t, http.MethodGet, nil)))
		require.Equal(t, 40*time.Second, send(tr, spent))
	})
}

// What cannot be read delays nobody, and is reported once a key.
func TestHostileAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fields := []string{
			"Retry-After: -5", "Retry-After: 99999999999999999", "RateLimit: x;y;z;;", `RateLimit: "a";r=-1;t=5`,
			"RateLimit-Remaining: -1", "X-RateLimit-Remaining: " + strings.Repeat("0", 9000),
		}
		var mu sync.Mutex
		seen := map[obey.Event]int{}
		n := 0
		tr := transport(t, obey.Options{
			Next: roundTripper(func(*http.Request) (*http.Response, error) {
				n++
				return answer(429, text(""), fields[n%len(fields)]), nil
			}),
			Observe: func(e obey.Event) {
				mu.Lock()
				defer mu.Unlock()
				seen[e]++
			},
		})
		start := time.Now()
		for range 60 {
			_, err := tr.RoundTrip(request(t, http.MethodGet, nil)) //nolint:bodyclose // of a test, with nothing behind it
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(start))
		want := map[obey.Event]int{}
		for _, field := range []string{"Retry-After", "RateLimit", "RateLimit-Remaining", "X-RateLimit-Remaining"} {
			want[obey.Event{Key: "http://api.example.com", Field: field}] = 1
		}
		require.Equal(t, want, seen)
	})
}

// Repeat sends a request again if that does nothing twice and its body can be had again.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals, status, field := 1, 429, "Retry-After: 3"
		var sent []string
		var answers []*body
		tr := transport(t, obey.Options{Repeat: 2, Next: roundTripper(func(r *http.Request) (*http.Response, error) {
			got := ""
			if r.Body != nil {
				b, _ := io.ReadAll(r.Body)
				got = string(b)
				r.Body.Close()
			}
			if sent = append(sent, got); len(sent) > refusals {
				return answer(200, text("done")), nil
			}
			b := text(strings.Repeat("too many ", 10_000))
			answers = append(answers, b)
			return answer(status, b, field), nil
		})})
		send := func(r *http.Request) (int, int, time.Duration) {
			sent, answers = nil, nil
			start := time.Now()
			res, err := tr.RoundTrip(r) //nolint:bodyclose // of a test, with nothing behind it
			require.NoError(t, err)
			for _, b := range answers[:min(len(answers), len(sent)-1)] {
				require.True(t, b.closed)
				require.LessOrEqual(t, b.read, 4<<10)
			}
			if res.StatusCode != 200 {
				require.False(t, answers[len(answers)-1].closed, "the caller's")
			}
			return res.StatusCode, len(sent), time.Since(start)
		}
		expect := func(r *http.Request, status, n int, took time.Duration) {
			t.Helper()
			gotStatus, gotN, gotTook := send(r)
			require.Equal(t, []any{status, n, took}, []any{gotStatus, gotN, gotTook})
			time.Sleep(5 * time.Second) //nolint:forbidigo // of the bubble
		}
		expect(request(t, http.MethodGet, nil), 200, 2, 3*time.Second)
		expect(request(t, http.MethodPut, bytes.NewReader([]byte("again"))), 200, 2, 3*time.Second)
		require.Equal(t, []string{"again", "again"}, sent)
		expect(request(t, http.MethodPut, io.MultiReader(strings.NewReader("once"))), 429, 1, 0)
		expect(request(t, http.MethodPost, strings.NewReader("pay")), 429, 1, 0)
		expect(request(t, http.MethodPost, strings.NewReader("pay"), "Idempotency-Key: 7"), 200, 2, 3*time.Second)
		refusals = 5
		expect(request(t, http.MethodGet, nil), 429, 3, 6*time.Second)
		refusals, status = 1, 503
		expect(request(t, http.MethodGet, nil), 200, 2, 3*time.Second)
		field = "X-Nothing: 1"
		expect(request(t, http.MethodGet, nil), 503, 1, 0)
		status, field = 429, `RateLimit: "a";r=0;t=4`
		expect(request(t, http.MethodGet, nil), 200, 2, 4*time.Second)
		status, field = 500, "Retry-After: 3"
		expect(request(t, http.MethodGet, nil), 500, 1, 0)
	})
}

// Units of the Limiter are taken first, and given back for what is not sent.
func TestOwnLimitFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := limiter(t, "mine: 2/10s; wait 1m")
		blocked := true
		tr := transport(t, obey.Options{Limiter: own, Key: func(*http.Request) string { return "k" }, Next: roundTripper(
			func(*http.Request) (*http.Response, error) {
				if blocked {
					return answer(503, text(""), "Retry-After: 3600"), nil
				}
				return answer(200, text("")), nil
			})})
		_, err := tr.RoundTrip(request(t, http.MethodGet, nil)) //nolint:bodyclose // of a test, with nothing behind it
		require.NoError(t, err)
		_, err = tr.RoundTrip(request(t, http.MethodGet, nil)) //nolint:bodyclose // of a test, with nothing behind it
		var tooLate *obey.WaitError
		require.ErrorAs(t, err, &tooLate)
		synctest.Wait()
		res, err := own.Peek(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, int64(1), res.Remaining)

		blocked = false
		time.Sleep(time.Hour) //nolint:forbidigo // of the bubble
		start := time.Now()
		for range 6 {
			_, err := tr.RoundTrip(request(t, http.MethodGet, nil)) //nolint:bodyclose // of a test, with nothing behind it
			require.NoError(t, err)
		}
		require.Equal(t, 20*time.Second, time.Since(start))
	})
}

// What the Limiter refuses says so, and by which policy.
func TestOwnLimitRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := roundTripper(func(*http.Request) (*http.Response, error) { return answer(200, text("")), nil })
		client := &http.Client{Transport: transport(t, obey.Options{Limiter: limiter(t, "mine: 1/1h"), Next: next})}
		_, err := client.Do(request(t, http.MethodGet, nil)) //nolint:bodyclose // of a test, with nothing behind it
		require.NoError(t, err)
		_, err = client.Do(request(t, http.MethodGet, nil)) //nolint:bodyclose // of a test, with nothing behind it
		var over *enforce.OverLimitError
		require.ErrorAs(t, err, &over)
		require.ErrorContains(t, err, `obey: the policy "mine: 1/1h": enforce: over the limit; try again in 1h`)
	})
}

// A client with a Timeout that is too short gets an error with a Timeout, at once, although nothing is sent.
func TestTimeoutOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := roundTripper(func(*http.Request) (*http.Response, error) { return answer(429, text(""), "Retry-After: 20"), nil })
		client := &http.Client{Transport: transport(t, obey.Options{Next: next}), Timeout: 3 * time.Second}
		start := time.Now()
		res, err := client.Do(request(t, http.MethodGet, nil))
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		_, err = client.Do(request(t, http.MethodGet, nil)) //nolint:bodyclose // of a test, with nothing behind it
		var failed *url.Error
		require.ErrorAs(t, err, &failed)
		require.True(t, failed.Timeout())
		require.Zero(t, time.Since(start))
	})
}

// idle is a RoundTripper with idle connections.
type idle struct {
	http.RoundTripper
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

// http.Client closes idle connections by a method of its Transport.
func TestCloseIdleConnections(t *testing.T) {
	next := &idle{}
	(&http.Client{Transport: transport(t, obey.Options{Next: next})}).CloseIdleConnections()
	require.Equal(t, 1, next.closed)
	next.RoundTripper = roundTripper(func(*http.Request) (*http.Response, error) { return nil, io.EOF })
	(&http.Client{Transport: transport(t, obey.Options{Next: next.RoundTripper})}).CloseIdleConnections() // it has none
}

// A server whose limit changes while it runs is followed within one window.
func TestChangedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 10 * time.Second
		start := time.Now()
		servers := []http.Handler{
			weir("100/10s fixed-window", guard.Headers{RateLimit: true})(), weir("20/10s", guard.Headers{RateLimit: true})(),
			weir("300/10s sliding-log", guard.Headers{RateLimit: true})(),
		}
		at := func() int { return min(int(time.Since(start)/(3*window)), 2) }
		c := make([]*tally, 3)
		for i := range c {
			c[i] = &tally{}
			servers[i] = c[i].count(servers[i])
		}
		tr := transport(t, obey.Options{Next: &wire{rtt: 10 * time.Millisecond, server: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { servers[at()].ServeHTTP(w, r) })}})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for time.Since(start) < 9*window {
					res, err := tr.RoundTrip(request(t, http.MethodGet, nil))
					if err == nil {
						res.Body.Close()
					}
					_ = pause(t.Context(), 20*time.Millisecond)
				}
			})
		}
		all.Wait()
		for i, admits := range []int{300, 80, 900} {
			require.LessOrEqual(t, c[i].refused, 12, "limit %d", i)
			require.Greater(t, c[i].served, admits*2/3, "limit %d", i)
		}
	})
}

// Fields on some routes, answers that fail, and connections that break: nobody waits for longer than MaxWait.
func TestUnsteadyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := weir("50/10s", guard.Headers{RateLimit: true})()
		n := 0
		var mu sync.Mutex
		server := &wire{rtt: 20 * time.Millisecond, server: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/limited" {
				limited.ServeHTTP(w, r)
			}
		})}
		tr := transport(t, obey.Options{MaxWait: 15 * time.Second, Next: roundTripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			n++
			turn := n % 50
			mu.Unlock()
			switch {
			case turn == 7:
				_ = pause(r.Context(), 30*time.Second) // silence
				return nil, errors.New("timeout")
			case turn%10 == 3:
				return nil, errors.New("connection reset")
			}
			return server.RoundTrip(r)
		})})
		var all sync.WaitGroup
		sent, refused, unsent := 0, 0, 0
		start := time.Now()
		for i := range 20 {
			all.Go(func() {
				for time.Since(start) < 2*time.Minute {
					r := request(t, http.MethodGet, nil)
					if r.URL.Path = "/free"; i%2 == 0 {
						r.URL.Path = "/limited"
					}
					began := time.Now()
					res, err := tr.RoundTrip(r)
					mu.Lock()
					var tooLate *obey.WaitError
					switch {
					case errors.As(err, &tooLate):
						require.LessOrEqual(t, time.Since(began), 15*time.Second)
						unsent++
					case err == nil:
						if sent++; res.StatusCode == http.StatusTooManyRequests {
							refused++
						}
						res.Body.Close()
					}
					mu.Unlock()
					_ = pause(t.Context(), 100*time.Millisecond)
				}
			})
		}
		all.Wait()
		require.Zero(t, unsent)
		require.Less(t, refused, sent/20+10)
		require.Greater(t, sent, 500)
	})
}

// BenchmarkNothingKnown is a request to a server that says nothing of limits, with everything that a Transport adds.
func BenchmarkNothingKnown(b *testing.B) {
	res := answer(200, http.NoBody, "Content-Type: text/plain", "Date: Sun, 01 Mar 2026 12:00:00 GMT") //nolint:bodyclose // it is empty
	tr, err := obey.New(obey.Options{Next: roundTripper(func(*http.Request) (*http.Response, error) { return res, nil })})
	require.NoError(b, err)
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://api.example.com/items", http.NoBody)
	require.NoError(b, err)
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 100))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = tr.RoundTrip(r) //nolint:bodyclose // of a test, with nothing behind it
	}
}

// The credential of AWS is the same in requests that are signed differently.
func TestSignedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transport(t, obey.Options{Next: roundTripper(func(*http.Request) (*http.Response, error) {
			return answer(429, text(""), "Retry-After: 3600"), nil
		})})
		send := func(credential string) error {
			_, err := tr.RoundTrip(request(t, http.MethodGet, nil, "Authorization: AWS4-HMAC-SHA256 Credential="+credential)) //nolint:bodyclose // of a test, with nothing behind it
			return err
		}
		require.NoError(t, send("AKID/20260301/eu/s3/aws4_request, SignedHeaders=host, Signature=1"))
		require.Error(t, send("AKID/20260302/eu/s3/aws4_request, SignedHeaders=host, Signature=2"))
		require.NoError(t, send("OTHER/20260302/eu/s3/aws4_request, SignedHeaders=host, Signature=2"))
	})
}

// A few requests whose limit would spread them over an hour go all the same, at the latest when they have waited for
// MaxWait, as long as the server admits them.
func TestFewRequests(t *testing.T) {
	for _, maxWait := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			tr := transport(t, obey.Options{MaxWait: maxWait, Next: &wire{
				server: express(60, time.Hour, true)(), rtt: time.Millisecond, epoch: true,
			}})
			for range 60 {
				start := time.Now()
				res, err := tr.RoundTrip(request(t, http.MethodGet, nil)) //nolint:bodyclose // of a test, with nothing behind it
				require.NoError(t, err)
				require.Equal(t, 200, res.StatusCode)
				require.LessOrEqual(t, time.Since(start), 31*time.Second)
			}
			_, err := tr.RoundTrip(request(t, http.MethodGet, nil)) //nolint:bodyclose // there is none
			var tooLate *obey.WaitError
			require.ErrorAs(t, err, &tooLate)
			require.Greater(t, tooLate.Wait, 20*time.Minute)
		})
	}
}

// A repetition whose turn does not come in time leaves the refusal.
func TestRepeatTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := text("too many")
		tr := transport(t, obey.Options{Repeat: 5, Next: roundTripper(func(*http.Request) (*http.Response, error) {
			return answer(429, b, "Retry-After: 3600"), nil
		})})
		res, err := tr.RoundTrip(request(t, http.MethodGet, nil)) //nolint:bodyclose // of a test, with nothing behind it
		require.NoError(t, err)
		require.Equal(t, 429, res.StatusCode)
		require.False(t, b.closed)
		got, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "too many", string(got))
	})
}
