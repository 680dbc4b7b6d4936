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
	"testing"
	"time"

	"github.com/weir-go/weir/internal/hosttest"
)

// measure runs all rows side by side, and returns what became of them.
func measure(tb testing.TB, rows []row) []outcome {
	tb.Helper()
	outcomes := make([]outcome, len(rows))
	urls, missing := open(tb, rows)
	most := 0
	for _, r := range rows {
		most = max(most, r.processes)
	}
	// Process 0 serves all rows, and each further one those that have as many.
	type share struct {
		rows  []int
		tasks []task
		done  [][]exchange
		err   error
	}
	shares := make([]share, most)
	for i, r := range rows {
		outcomes[i] = outcome{row: r}
		if urls[i] == "" {
			outcomes[i].skipped = missing
			continue
		}
		rate := float64(r.server.limit) / r.server.window.Seconds()
		pause := time.Duration(float64(workers*r.processes) / (eager * rate) * float64(time.Second))
		for p := range r.processes {
			shares[p].rows = append(shares[p].rows, i)
			shares[p].tasks = append(shares[p].tasks, task{URL: urls[i], Obeys: r.obeys, Pause: pause, Lasts: r.lasts})
		}
	}
	children := make([]*hosttest.Process, most)
	for p := range children {
		children[p] = hosttest.Start(tb, childEnv, "1")
		var ready struct{}
		if err := children[p].Read(&ready); err != nil {
			tb.Fatal(err)
		}
	}
	over := make(chan int)
	for p, c := range children {
		go func() {
			defer func() { over <- p }()
			line, err := json.Marshal(shares[p].tasks)
			if err == nil {
				err = c.Ask(string(line), &shares[p].done)
			}
			shares[p].err = err
		}()
	}
	for range children {
		select {
		case p := <-over:
			if shares[p].err != nil {
				tb.Fatal(shares[p].err)
			}
		case <-tb.Context().Done():
			tb.Fatal(tb.Context().Err())
		}
	}
	sent := make([][][]exchange, len(rows))
	for _, s := range shares {
		for n, i := range s.rows {
			sent[i] = append(sent[i], s.done[n])
		}
	}
	for i := range rows {
		if outcomes[i].skipped == "" {
			outcomes[i] = count(rows[i], sent[i])
		}
	}
	return outcomes
}

// open starts the server of each row and returns their URLs. Where there is no node the URL is "", and the text says why.
func open(tb testing.TB, rows []row) (urls []string, missing string) {
	tb.Helper()
	urls = make([]string, len(rows))
	var inNode []int
	var options []expressOptions
	for i, r := range rows {
		if r.server.express != nil {
			o := *r.server.express
			o.Limit, o.WindowMs = r.server.limit, r.server.window.Milliseconds()
			inNode, options = append(inNode, i), append(options, o)
			continue
		}
		h, err := r.server.handler()
		if err != nil {
			tb.Fatal(err)
		}
		s := httptest.NewServer(h)
		tb.Cleanup(s.Close)
		urls[i] = s.URL
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
	for n, i := range inNode {
		urls[i] = fmt.Sprintf("http://127.0.0.1:%d", ports[n])
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
