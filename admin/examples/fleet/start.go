package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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

// admin is a weir-admin that runs.
type admin struct{ url, token string }

// send changes the policy "api" of the app, whatever there is. A program would send the ETag that it has read in the
// place of "*", so that it does not undo what somebody else has changed since.
func (a *admin) send(ctx context.Context, method, policy string) error {
	url := a.url + "/v1/apps/" + app + "/policies/api"
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(policy))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("If-Match", "*")
	request.Header.Set("Weir-Reason", "an example")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("weir-admin: %s\n%s", response.Status, answer)
	}
	return err
}

var serving = regexp.MustCompile(`weir-admin: serving"? address=(\S+)`)

// startAdmin starts a weir-admin with its record in dir, as by
//
//	weir-admin migrate -db weir.db
//	weir-admin token -db weir.db -role owner -app shop anna
//	weir-admin -db weir.db -redis redis://127.0.0.1:6379
func startAdmin(ctx context.Context, dir, socket string) (a *admin, stop func(), err error) {
	program, db := filepath.Join(dir, "weir-admin"), filepath.Join(dir, "weir.db")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/weir-go/weir/admin/cmd/weir-admin")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("go build: %w\n%s", err, text)
	}
	if text, err := exec.CommandContext(ctx, program, "migrate", "-db", db).CombinedOutput(); err != nil { //nolint:gosec // built above
		return nil, nil, fmt.Errorf("weir-admin migrate: %w\n%s", err, text)
	}
	token, err := exec.CommandContext(ctx, program, "token", "-db", db, "-role", "owner", "-app", app, "anna").Output() //nolint:gosec // built above
	if err != nil {
		return nil, nil, err
	}
	server := exec.CommandContext(ctx, program, //nolint:gosec // built above
		"-db", db, "-redis", "unix://"+socket, "-addr", "127.0.0.1:0")
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
		return &admin{url: "http://" + at, token: strings.TrimSpace(string(token))}, stop, nil
	case <-ended:
		return nil, nil, errors.Join(errors.New("weir-admin has ended; its log says why"), server.Wait())
	}
}
