package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// programEnv makes the test binary what it tests, in a process of its own.
const programEnv = "WEIR_TEST_QUICKSTART"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) == "" {
		os.Exit(redistest.Main(m))
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := patientRun(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience is longer than a busy machine needs.
const patience = 30 * time.Second

// patientRun is run with a Redis that may take its time to answer.
func patientRun(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	client := redisstore.ClientOptions(o.servers...)
	client.DialTimeout, client.ReadTimeout, client.WriteTimeout, client.PoolTimeout = patience, patience, patience, patience
	rdb := redis.NewUniversalClient(client)
	defer rdb.Close()
	store, err := redisstore.New(rdb, redisstore.Options{Deadline: patience})
	if err != nil {
		return err
	}
	return runOn(ctx, store, o, out)
}

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-demo", "-policy", "5/1h"}, &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	const burst = 7
	require.Len(t, lines, 1+4*burst+2)
	for i, line := range lines[1 : 1+4*burst] {
		cells := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1)
		request := i % burst
		if request < 5 {
			assert.Equal(t, []string{"200 OK", "5", string(rune('4' - request))}, cells[2:5], line)
			assert.Len(t, cells, 6, line)
		} else {
			assert.Equal(t, []string{"429 Too Many Requests", "5", "0"}, cells[2:5], line)
			assert.Regexp(t, `^7[012]\d$`, cells[6], line) // 720 s, less what the machine has taken
		}
	}
	assert.Equal(t, "each framework: 5 allowed, then 429", lines[len(lines)-1])
}

// The demonstration goes as far as the smallest burst, and not on and on.
func TestDemoOfOtherPolicies(t *testing.T) {
	for policy, want := range map[string]string{
		"9/1h, 100/1d burst 2": "each framework: 2 allowed, then 429",
		"1000/1h":              "each framework: 20 allowed\n20 requests are the most it sends; a policy with a smaller burst shows refusals too",
	} {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), []string{"-demo", "-policy", policy}, &out))
		assert.True(t, strings.HasSuffix(out.String(), "\n"+want+"\n"), out.String())
	}
}

// Two demonstrations on one Redis do not see each other.
func TestDemoTwice(t *testing.T) {
	server := redistest.Single(t)
	for range 2 {
		var out bytes.Buffer
		require.NoError(t, patientRun(t.Context(), []string{"-demo", "-redis", server.Addr(), "-policy", "5/1h"}, &out))
		assert.Contains(t, out.String(), "each framework: 5 allowed, then 429")
	}
}

func TestSums(t *testing.T) {
	assert.Equal(t, "2 allowed, then 429, then 1 allowed", sumUp([]int{200, 200, 429, 429, 200}))
	assert.Equal(t, "503", sumUp([]int{503, 503}))
	assert.Equal(t, "gin: 1 allowed\necho: 429", together([]string{"gin", "echo"}, []string{"1 allowed", "429"}))
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-framework", "django"}, `-framework "django": give one of echo, fiber, gin, nethttp`},
		{[]string{"-policy", "5 per minute"}, `expected "/"`},
		{[]string{"-policy", "login: 5/10s"}, `-policy: the name "login" is taken by POST /login; choose another`},
		{[]string{"-policy", "login: 3/1m"}, `-policy: the name "login" is taken by POST /login; choose another`},
		{[]string{"-policy", "20/1s,", "1000/1h"}, `"1000/1h" is no flag; limits with spaces need quotes`},
		{[]string{"-redis", "localhost"}, `-redis "localhost": give host:port, such as 127.0.0.1:6379`},
		{[]string{"-redis", "redis://localhost:6379"}, `give host:port`},
		{[]string{"-redis", ":6379"}, `-redis ":6379": give host:port`},
		{[]string{"-redis", "127.0.0.1:6379, 127.0.0.1"}, `-redis "127.0.0.1": give host:port`},
		{[]string{"-redis", "127.0.0.1:6379,"}, `-redis "": give host:port`},
		{[]string{"-addr", "8080"}, `-addr "8080": give host:port, such as 127.0.0.1:8080`},
		{[]string{"-addr", "nowhere:-1"}, `-addr "nowhere:-1": give host:port`},
		{[]string{"-demo", "-framework", "gin"}, `-framework: -demo starts every framework on a port of its own`},
		{[]string{"-demo", "-addr", ":0"}, `-addr: -demo starts every framework on a port of its own`},
	} {
		var out bytes.Buffer
		assert.ErrorContains(t, run(t.Context(), c.args, &out), c.want, c.args)
		assert.Empty(t, out.String(), c.args)
	}
}

// What the program prints is true, and it ends in order, also if Redis is not there.
func TestWhatIsPrinted(t *testing.T) {
	for _, c := range []struct {
		args   []string
		want   string
		status int
	}{
		{nil, "counting in the process:\n  GET  /hello       5/10s for each user", 200},
		{[]string{"-redis", " 127.0.0.1:1 "}, "counting in Redis at 127.0.0.1:1, or in the process while it does not answer:", 200},
		{[]string{"-redis", "127.0.0.1:1, 127.0.0.1:2"}, "in Redis at 127.0.0.1:1, 127.0.0.1:2, or", 200},
		{[]string{"-redis", "127.0.0.1:1", "-policy", "7/1m;fail open"}, "or not at all while it does not answer:\n  GET  /hello       7/1m; fail open for", 200},
		{[]string{"-redis", "127.0.0.1:1", "-policy", "7/1m;fail closed"}, "and refusing while it does not answer:", 503},
	} {
		for _, framework := range names() {
			ctx, cancel := context.WithCancel(t.Context())
			in, out := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				err := run(ctx, append([]string{"-addr", " 127.0.0.1:0", "-framework", framework}, c.args...), out)
				_ = out.CloseWithError(err)
				ended <- err
			}()
			text := make([]byte, 1000)
			n, err := in.Read(text)
			require.NoError(t, err)
			assert.Contains(t, string(text[:n]), framework+" serves http://127.0.0.1:")
			assert.Contains(t, string(text[:n]), c.want)
			url := regexp.MustCompile(`http://[\d.:]+`).FindString(string(text[:n]))
			var client http.Client
			answers := send(t, &client, []string{url}, "alice", 1, 1)
			assert.Equal(t, map[int]int{c.status: 1}, count(answers))
			cancel()
			assert.NoError(t, <-ended)
		}
	}
}

// Four processes, one for each framework, admit exactly the limit together. When
// Redis is killed, no request fails.
func TestFleet(t *testing.T) {
	const limit = 100
	redisServer := redistest.Single(t)
	var urls []string
	for _, framework := range names() {
		urls = append(urls, startProcess(t, "-framework", framework, "-redis", redisServer.Addr(), "-policy", "100/1d"))
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	require.Equal(t, map[int]int{200: 16}, count(send(t, client, urls, "warm", 1, 4)))
	assert.Equal(t, map[int]int{200: limit, 429: 4*64 - limit}, count(send(t, client, urls, "alice", 16, 4)))

	redisServer.Kill()
	assert.Equal(t, map[int]int{200: 4 * limit, 429: 4 * 50}, count(send(t, client, urls, "carol", 1, 150)), "each process limits for itself")

	redisServer.Restart(t)
	asked := 0
	require.Eventually(t, func() bool {
		before := redisServer.CommandStats(t)["set"]
		asked++ // another user each time, whom no limit refuses, and for whom nothing is handed back
		send(t, client, urls, fmt.Sprint("bob", asked), 1, 1)
		return redisServer.CommandStats(t)["set"]-before == 4
	}, patience, 50*time.Millisecond, "all processes find Redis again")
}

// startProcess runs the program on a free port and returns its URL.
func startProcess(t *testing.T, args ...string) (url string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(args, "-addr", "127.0.0.1:0")...) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), programEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		assert.NoError(t, cmd.Wait(), "it ends in order")
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	url = regexp.MustCompile(`http://[\d.:]+`).FindString(line)
	require.NotEmpty(t, url, line)
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return url
}

func count(statuses []int) map[int]int {
	n := map[int]int{}
	for _, status := range statuses {
		n[status]++
	}
	return n
}

// send asks every server for /hello as a user: so many workers for each server at
// once, so many times one after the other.
func send(t *testing.T, client *http.Client, urls []string, user string, workers, times int) (statuses []int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range workers * len(urls) {
		wg.Go(func() {
			for range times {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, urls[i%len(urls)]+"/hello", nil)
				if !assert.NoError(t, err) {
					return
				}
				req.Header.Set(demoUser, user)
				resp, err := client.Do(req)
				if !assert.NoError(t, err) {
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				assert.NoError(t, err)
				assert.NoError(t, resp.Body.Close())
				mu.Lock()
				statuses = append(statuses, resp.StatusCode)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return statuses
}
