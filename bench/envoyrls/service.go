package main

import (
	"bytes"
	"context"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
)

var (
	program = flag.String("weir", "", "the `program` weir; without one it is built")
	null    = flag.Bool("null", false, "hold the other service against itself, which shows the noise of the machine")
)

// theirs and weirs return the commands of the two services, which they build.
func theirs(tb testing.TB) []string {
	return []string{output(tb, "go", "tool", "-n", "service_cmd")}
}

func weirs(tb testing.TB) []string {
	if *null {
		return theirs(tb)
	}
	if *program == "" {
		*program = filepath.Join(tb.TempDir(), "weir")
		output(tb, "go", "build", "-C", "../../cmd/weir", "-o", *program, ".")
	}
	return []string{*program, "rls"}
}

func output(tb testing.TB, name string, args ...string) string {
	out, err := exec.CommandContext(tb.Context(), name, args...).Output()
	if err != nil {
		tb.Fatalf("%s %s: %v; it runs in the directory of this program", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// A service is one of the two, running.
type service struct {
	name       string
	pid, redis string // the processes
	addr       string
	client     rlspb.RateLimitServiceClient
}

// start starts a service beside Redis, with files of configuration by their names.
func start(tb testing.TB, name string, command []string, redis *redistest.Server, files map[string]string, env ...string) *service {
	root := tb.TempDir()
	if err := os.Mkdir(filepath.Join(root, "config"), 0o700); err != nil {
		tb.Fatal(err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(root, "config", file), []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	ports := freePorts(tb, 3)
	log, err := os.Create(filepath.Join(root, "log"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = log.Close() })
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), command[0], command[1:]...) //nolint:gosec // what has been built
	cmd.Env = append(os.Environ(), append([]string{
		"HOST=127.0.0.1", "PORT=" + ports[0],
		"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + ports[1],
		"DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + ports[2],
		"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=", "RUNTIME_WATCH_ROOT=false",
		"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(),
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error",
	}, env...)...)
	cmd.Stdout, cmd.Stderr = log, log
	hosttest.Tie(cmd)
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	info, err := redis.Client(tb).InfoMap(tb.Context(), "server").Result()
	if err != nil {
		tb.Fatal(err)
	}
	s := &service{name: name, pid: strconv.Itoa(cmd.Process.Pid), redis: info["Server"]["process_id"], addr: "127.0.0.1:" + ports[1]}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	s.client = rlspb.NewRateLimitServiceClient(conn)
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	req := &rlspb.RateLimitRequest{Domain: "none", Descriptors: []*extpb.RateLimitDescriptor{entries("key", "value")}}
	_, err = s.client.ShouldRateLimit(ctx, req, grpc.WaitForReady(true))
	for status.Code(err) == codes.Unknown && ctx.Err() == nil { // weir answers before it has its configuration
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // another process
		_, err = s.client.ShouldRateLimit(ctx, req)
	}
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		tb.Fatalf("%s does not answer: %v; it has said:\n%s", name, err, said)
	}
	return s
}

// processor returns the time that a process has had of all processors.
func processor(pid string) time.Duration {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	_, text, found := bytes.Cut(text, []byte(") ")) // after the name, which may be anything
	fields := strings.Fields(string(text))
	if err != nil || !found || len(fields) < 13 {
		return 0 // not Linux
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// freePorts returns ports of which nobody has one. Somebody else could take one before the service does, who is then
// not there.
func freePorts(tb testing.TB, n int) []string {
	var ports []string
	for range n {
		l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			tb.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}

// entries returns a descriptor of keys and their values.
func entries(keysAndValues ...string) *extpb.RateLimitDescriptor {
	d := new(extpb.RateLimitDescriptor)
	for kv := range slices.Chunk(keysAndValues, 2) {
		d.Entries = append(d.Entries, &extpb.RateLimitDescriptor_Entry{Key: kv[0], Value: kv[1]})
	}
	return d
}
