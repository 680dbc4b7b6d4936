package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/internal/adminapi"
)

// startRedis starts a redis-server that listens on a socket in dir.
func startRedis(ctx context.Context, dir string) (socket string, stop func(), err error) {
	socket = filepath.Join(dir, "redis.sock")
	server := exec.CommandContext(ctx, "redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err := server.Start(); err != nil {
		return "", nil, fmt.Errorf("redis-server: %w; install it", err)
	}
	stop = func() {
		_ = server.Process.Kill()
		_ = server.Wait() // killed
	}
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	defer rdb.Close()
	for range 500 {
		if err = rdb.Ping(ctx).Err(); err == nil {
			return socket, stop, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	stop()
	return "", nil, err
}

const token = "a secret of more than 20 characters" //nolint:gosec // of this example

var serving = regexp.MustCompile(`weir-admin: serving"? address=(\S+)`)

// startAdmin starts a weir-admin with its record in dir, as by
//
//	go run ./cmd/weir-admin -db weir.db -redis redis://127.0.0.1:6379 -token-file token
func startAdmin(ctx context.Context, dir, socket string) (admin *adminapi.Client, stop func(), err error) {
	program, tokens := filepath.Join(dir, "weir-admin"), filepath.Join(dir, "token")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/weir-go/weir/admin/cmd/weir-admin")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("go build: %w\n%s", err, text)
	}
	if err := os.WriteFile(tokens, []byte("anna:"+token+"\n"), 0o600); err != nil {
		return nil, nil, err
	}
	server := exec.CommandContext(ctx, program, //nolint:gosec // built above
		"-db", filepath.Join(dir, "weir.db"), "-redis", "unix://"+socket, "-token-file", tokens, "-addr", "127.0.0.1:0")
	stderr, err := server.StderrPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	address, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := serving.FindStringSubmatch(lines.Text()); m != nil {
				address <- m[1]
			}
		}
	}()
	stop = func() {
		_ = server.Process.Signal(os.Interrupt) // it ends by itself
		<-ended
		_ = server.Wait()
	}
	select {
	case at := <-address:
		return &adminapi.Client{URL: "http://" + at, Token: token}, stop, nil
	case <-ended:
		return nil, nil, errors.Join(errors.New("weir-admin has ended; its log says why"), server.Wait())
	}
}
