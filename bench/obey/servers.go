package main

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/hosttest"
)

// measure runs all rows side by side, and beside them, with a key of their own, clients of each server that do not obey.
func measure(tb testing.TB, rows []row) []outcome {
	tb.Helper()
	urls, missing := open(tb, rows)
	outcomes := make([]outcome, len(rows))
	var jobs []job
	greedy := map[*server]*tally{}
	for i, r := range rows {
		outcomes[i] = outcome{row: r}
		url := urls[r.server]
		if url == "" {
			outcomes[i].skipped = missing
			continue
		}
		if greedy[r.server] == nil {
			greedy[r.server] = &tally{}
			t := task{URL: url, Key: "greedy", Pause: r.pause(1), Lasts: r.lasts}
			jobs = append(jobs, job{"greedy", t, greedy[r.server]})
		}
		outcomes[i].sent, outcomes[i].greedy = &tally{}, greedy[r.server]
		t := task{URL: url, Key: fmt.Sprint("obeys-", r.processes), Obeys: true, Pause: r.pause(r.processes), Lasts: r.lasts}
		for p := range r.processes {
			jobs = append(jobs, job{fmt.Sprint("obeys-", p), t, outcomes[i].sent})
		}
	}
	run(tb, jobs)
	return outcomes
}

// job is a task of one of the processes, whose requests are counted with those of the same tally.
type job struct {
	process string
	task    task
	into    *tally
}

// run starts the processes, gives each its tasks when the next window begins that is aligned to the clock, and counts
// what they have sent.
func run(tb testing.TB, jobs []job) {
	tb.Helper()
	of := map[string][]job{}
	for _, j := range jobs {
		of[j.process] = append(of[j.process], j)
	}
	processes := map[string]*hosttest.Process{}
	for name := range of {
		p := hosttest.Start(tb, childEnv, "1")
		var ready struct{}
		if err := p.Read(&ready); err != nil {
			tb.Fatal(err)
		}
		processes[name] = p
	}
	sleep(tb.Context(), time.Until(time.Now().Truncate(window).Add(window)))

	var mu sync.Mutex
	sent := map[*tally][][]exchange{}
	lasts := map[*tally]time.Duration{}
	over := make(chan error, len(of))
	for name, jobs := range of {
		go func() {
			var tasks []task
			for _, j := range jobs {
				tasks = append(tasks, j.task)
			}
			var done [][]exchange
			line, err := json.Marshal(tasks)
			if err == nil {
				err = processes[name].Ask(string(line), &done)
			}
			mu.Lock()
			defer mu.Unlock()
			for i, exchanges := range done {
				sent[jobs[i].into] = append(sent[jobs[i].into], exchanges)
				lasts[jobs[i].into] = jobs[i].task.Lasts
			}
			over <- err
		}()
	}
	for range of {
		select {
		case err := <-over:
			if err != nil {
				tb.Fatal(err)
			}
		case <-tb.Context().Done():
			tb.Fatal(tb.Context().Err())
		}
	}
	for into, exchanges := range sent {
		*into = count(lasts[into], exchanges)
	}
}

// open starts the servers of all rows and returns their URLs. Those that need node have none where it is missing, and the
// text says why.
func open(tb testing.TB, rows []row) (urls map[*server]string, missing string) {
	tb.Helper()
	urls = map[*server]string{}
	var inNode []*server
	var options []expressOptions
	for _, r := range rows {
		if _, ok := urls[r.server]; ok {
			continue
		}
		urls[r.server] = ""
		if r.express != nil {
			o := *r.express
			o.Limit, o.WindowMs = r.limit, r.window.Milliseconds()
			inNode, options = append(inNode, r.server), append(options, o)
			continue
		}
		h, err := r.handler()
		if err != nil {
			tb.Fatal(err)
		}
		s := httptest.NewServer(h)
		tb.Cleanup(s.Close)
		urls[r.server] = s.URL
	}
	if inNode == nil {
		return urls, ""
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("WEIR_REQUIRE_NODE") == "1" {
				tb.Fatal(fmt.Errorf("%w; on Debian: apt-get install --no-install-recommends nodejs npm", err))
			}
			return urls, "no " + program
		}
	}
	ports, err := startExpress(tb, options)
	if err != nil {
		tb.Fatal(err)
	}
	for n, s := range inNode {
		urls[s] = fmt.Sprintf("http://127.0.0.1:%d", ports[n])
	}
	return urls, ""
}

// expressOptions are those of express-rate-limit, for one server.
type expressOptions struct {
	Limit           int    `json:"limit"`
	WindowMs        int64  `json:"windowMs"`
	LegacyHeaders   bool   `json:"legacyHeaders"`
	StandardHeaders string `json:"standardHeaders"` // "" for none
}

//go:embed express.mjs package.json package-lock.json
var program embed.FS

// startExpress installs the packages in a directory that goes away, and serves until tb is over. It returns the ports.
func startExpress(tb testing.TB, options []expressOptions) (ports []int, _ error) {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.CopyFS(dir, program); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(tb.Context(), 3*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if said, err := npm.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm ci: %w: %s", err, said)
	}
	text, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	//nolint:gosec // the program is ours
	node := exec.CommandContext(context.WithoutCancel(tb.Context()), "node", filepath.Join(dir, "express.mjs"), string(text))
	node.Stderr = os.Stderr
	hosttest.Tie(node)
	in, err := node.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := node.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := node.Start(); err != nil {
		return nil, err
	}
	tb.Cleanup(func() {
		_ = in.Close() // on which it ends
		_ = node.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return nil, errors.Join(errors.New("node has ended before it served"), err)
	}
	return ports, json.Unmarshal(line, &ports)
}
