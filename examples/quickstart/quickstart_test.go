package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	store, closeStore, err := open("")
	require.NoError(t, err)
	defer closeStore()
	require.NoError(t, runDemo(&out, func(user any) (guards, error) { return newGuards(store, "5/10s", user) }))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 1+4*burst)
	for i, line := range lines[1:] {
		cells := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1)
		request := i % burst
		if request < 5 {
			assert.Equal(t, []string{"200 OK", "5", string(rune('4' - request))}, cells[2:5], line)
			assert.Len(t, cells, 6, line)
		} else {
			assert.Equal(t, []string{"429 Too Many Requests", "5", "0"}, cells[2:5], line)
			assert.Equal(t, "2", cells[6], line)
		}
	}
}

func TestMistakes(t *testing.T) {
	assert.ErrorContains(t, run("django", "127.0.0.1:0", "", "5/10s", false), "give one of echo, fiber, gin, nethttp")
	assert.ErrorContains(t, run("gin", "127.0.0.1:0", "", "5 per minute", false), `expected "/"`)
	assert.Error(t, run("gin", "nowhere:-1", "", "5/10s", false))
}

// Four processes, one for each framework, admit exactly the limit together. When
// Redis is killed, no request fails, and none takes longer than the deadline and
// 50 ms.
func TestFleet(t *testing.T) {
	const limit = 100
	redisServer := redistest.Single(t)
	program := filepath.Join(t.TempDir(), "quickstart")
	build := exec.Command("go", "build", "-o", program, ".")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)

	var urls []string
	for _, framework := range names() {
		urls = append(urls, startProcess(t, program, "-framework", framework, "-redis", redisServer.Addr(), "-policy", "100/1h"))
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	require.Equal(t, map[int]int{200: 16}, count(send(t, client, urls, "warm", 1, 4)))
	assert.Equal(t, map[int]int{200: limit, 429: 4*64 - limit}, count(send(t, client, urls, "alice", 16, 4)))

	late := redistest.Lateness(t)
	redisServer.Kill()
	answers := send(t, client, urls, "alice", 1, 150)
	for _, a := range answers {
		assert.Less(t, a.status, 500)
		assert.LessOrEqual(t, a.took, redisstore.DefaultDeadline+50*time.Millisecond+late())
	}
	assert.Equal(t, map[int]int{200: 4 * limit, 429: 4 * 50}, count(answers), "each process limits for itself")

	redisServer.Restart(t)
	require.Eventually(t, func() bool {
		before := redisServer.CommandStats(t)["set"]
		send(t, client, urls, "bob", 1, 1)
		return redisServer.CommandStats(t)["set"]-before == 4
	}, 10*time.Second, 50*time.Millisecond, "all processes find Redis again")
}

// startProcess runs the program on a free port and returns its URL.
func startProcess(t *testing.T, program string, args ...string) (url string) {
	t.Helper()
	cmd := exec.Command(program, append(args, "-addr", "127.0.0.1:0")...)
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

type answer struct {
	status int
	took   time.Duration
}

func count(answers []answer) map[int]int {
	n := map[int]int{}
	for _, a := range answers {
		n[a.status]++
	}
	return n
}

// send asks every server for /hello as a user: so many workers for each server at
// once, so many times one after the other.
func send(t *testing.T, client *http.Client, urls []string, user string, workers, times int) (answers []answer) {
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
				start := time.Now()
				resp, err := client.Do(req)
				if !assert.NoError(t, err) {
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				took := time.Since(start)
				assert.NoError(t, err)
				assert.NoError(t, resp.Body.Close())
				mu.Lock()
				answers = append(answers, answer{resp.StatusCode, took})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return answers
}
