package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-demo", "-policy", "5/1h"}, &out))
	for framework := range frameworks {
		for i := range 5 {
			assert.Contains(t, out.String(), fmt.Sprintf("%s %d: 200 OK, %d left\n", framework, i+1, 4-i))
		}
		assert.Contains(t, out.String(), framework+" 6: 429 Too Many Requests, 0 left\n"+framework+" 7: 429")
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-framework", "django"}, `-framework "django" []: give one of the four`},
		{[]string{"-policy", "5 per minute"}, `-policy: `},
		{[]string{"-policy", "20/1s,", "1000/1h"}, `-framework "nethttp" ["1000/1h"]: give one of the four, and limits in quotes`},
		{[]string{"-addr", "nowhere:-1"}, `listen tcp`},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), c.args, &out), c.want, c.args)
		assert.Empty(t, out.String(), c.args)
	}
}

// Each framework answers, and ends in order, also if Redis is not there.
func TestServes(t *testing.T) {
	for framework := range frameworks {
		ctx, cancel := context.WithCancel(t.Context())
		in, out := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			err := run(ctx, []string{"-addr", "127.0.0.1:0", "-framework", framework, "-redis", "127.0.0.1:1"}, out)
			_ = out.CloseWithError(err)
			ended <- err
		}()
		text := make([]byte, 1000)
		n, err := in.Read(text)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, ask(t, regexp.MustCompile(`http://[\d.:]+`).FindString(string(text[:n]))))
		cancel()
		require.NoError(t, <-ended)
	}
}

// Four servers, one for each framework, admit exactly the limit together.
func TestFleet(t *testing.T) {
	const limit, patience = 20, 30 * time.Second
	redisServer := redistest.Single(t)
	admitted, refused := 0, 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, start := range frameworks {
		rdb := redisServer.Client(t, func(o *redis.Options) {
			o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = patience, patience, true
		})
		store, err := redisstore.New(rdb, redisstore.Options{Deadline: patience})
		require.NoError(t, err)
		g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "20/1d", Key: keyfunc.IP()}, Store: store})
		require.NoError(t, err)
		defer g.Close()
		wg.Go(func() {
			assert.NoError(t, listen(t.Context(), "127.0.0.1:0", start(g), func(url string) error {
				for range limit {
					status := ask(t, url)
					mu.Lock()
					switch status {
					case http.StatusOK:
						admitted++
					case http.StatusTooManyRequests:
						refused++
					}
					mu.Unlock()
				}
				return nil
			}))
		})
	}
	wg.Wait()
	assert.Equal(t, [2]int{limit, 3 * limit}, [2]int{admitted, refused})
}

func ask(t *testing.T, url string) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/hello", http.NoBody)
	require.NoError(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if !assert.NoError(t, err) {
		return 0
	}
	assert.NoError(t, resp.Body.Close())
	return resp.StatusCode
}
