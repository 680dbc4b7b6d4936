package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is one redis-server process. Its methods may be called from several goroutines, but
// starting and killing it concurrently makes little sense.
type Server struct {
	program string
	dir     string
	argv    func(p ports) ([]string, error)
	ports   ports // chosen by the first start, kept by every Restart
	free    func()

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed once cmd has been waited for
}

// ports are the ports of one server. The bus is used by members of a Cluster only; it is chosen
// explicitly because its default, 10000 above the other, often lies beyond 65535. That of TLS is
// used by servers with a [Certificate].
type ports struct{ client, bus, tls int }

// errExited says that the process ended before it answered. A reason may be a port that somebody
// else took between its being found free and its being used.
var errExited = errors.New("redis-server exited")

// Single starts a redis-server without persistence. The args are passed on, for example
// "--maxmemory", "1mb"; they win over those of this package. [Certificate.Args] among them open an
// address for TLS, and "--user" adds a user. A password of the default user must not be among them,
// because the server's own helpers connect without.
func Single(t testing.TB, args ...string) *Server {
	t.Helper()
	return startServer(t, func(p ports) ([]string, error) {
		return append(baseArgs(p, args), args...), nil
	})
}

// baseArgs are the arguments that every server shares, but for the address for TLS, which those
// have that are given a certificate.
func baseArgs(p ports, args []string) []string {
	base := []string{
		"--port", strconv.Itoa(p.client),
		"--bind", "127.0.0.1", "--protected-mode", "no",
		"--save", "", "--appendonly", "no",
	}
	if secure(args) {
		base = append(base, "--tls-port", strconv.Itoa(p.tls))
	}
	return base
}

// startServer starts redis-server with the arguments that argv makes for its ports, and has it
// killed when the test ends.
func startServer(t testing.TB, argv func(p ports) ([]string, error)) *Server {
	t.Helper()
	s := &Server{program: program(t), dir: t.TempDir(), argv: argv, free: func() {}}
	t.Cleanup(func() {
		s.Kill()
		s.free()
	})
	if err := s.start(t); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return s
}

// start launches the process and waits until it answers. A server that lost its port is launched
// again: on new ports the first time, on its old ones when it restarts.
func (s *Server) start(t testing.TB) error {
	ctx, cancel := patient(t)
	defer cancel()
	choose := s.ports.client == 0
	var err error
	for range 5 {
		if choose {
			s.free()
			if err = s.choosePorts(); err != nil {
				return err
			}
		}
		if err = s.launch(); err != nil {
			return err
		}
		err = poll(ctx, 2*time.Millisecond, s.answers)
		if err == nil {
			return nil
		}
		s.Kill()
		if !errors.Is(err, errExited) {
			break
		}
	}
	return fmt.Errorf("%w; the end of its log:\n%s", err, s.logTail())
}

// launch starts the process without waiting for it to be useful.
func (s *Server) launch() error {
	args, err := s.argv(s.ports)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // it is always killed, so its status says nothing
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd, s.exited = cmd, exited
	return nil
}

// answers returns nil once this very process serves requests. The process id is compared because
// the port may have been lost to another redis-server, which would answer just as well.
func (s *Server) answers() error {
	cmd, exited := s.process()
	select {
	case <-exited:
		return errExited
	default:
	}
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "INFO server\r\nPING\r\n"); err != nil {
		return err
	}
	var reply []byte
	for buf := make([]byte, 4096); !bytes.Contains(reply, []byte("+PONG\r\n")); {
		n, err := conn.Read(buf)
		if err != nil {
			return fmt.Errorf("PING to %s: %w", s.Addr(), err)
		}
		reply = append(reply, buf[:n]...)
	}
	if !bytes.Contains(reply, fmt.Appendf(nil, "\r\nprocess_id:%d\r\n", cmd.Process.Pid)) {
		return fmt.Errorf("another server answers on %s", s.Addr())
	}
	return nil
}

// Addr returns the server's address, 127.0.0.1 and its port. It never changes.
func (s *Server) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.client))
}

// TLSAddr returns the address at which the server takes TLS, and nothing else, if it was started
// with [Certificate.Args]. It never changes.
func (s *Server) TLSAddr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.tls))
}

// Client returns a client of the server with ContextTimeoutEnabled and the default options of go-redis, changed by mods.
// It is closed when the test ends.
func (s *Server) Client(t testing.TB, mods ...func(*redis.Options)) *redis.Client {
	t.Helper()
	opts := &redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true}
	for _, mod := range mods {
		mod(opts)
	}
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Kill ends the process as a crash would (SIGKILL) and returns when it is gone. A server that is
// not running is left alone.
func (s *Server) Kill() {
	cmd, exited := s.process()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // fails only if it has already ended
	<-exited
}

// Restart kills the server if it is running and starts it again on the same port. Its data and its
// loaded scripts are gone, unless args given at the start made it persistent.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	if err := s.start(t); err != nil {
		t.Fatalf("redistest: restart: %v", err)
	}
}

// Pause stops the process (SIGSTOP): its connections stay open, the kernel still accepts new ones,
// and nothing is answered. What is sent meanwhile is executed after Resume.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	cmd, _ := s.process()
	if err := pause(cmd.Process); err != nil {
		t.Fatalf("redistest: pause: %v", err)
	}
}

// Resume lets a paused process run again.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	cmd, _ := s.process()
	if err := resume(cmd.Process); err != nil {
		t.Fatalf("redistest: resume: %v", err)
	}
}

// Running reports whether the process exists; a paused one does.
func (s *Server) Running() bool {
	cmd, exited := s.process()
	if cmd == nil {
		return false
	}
	select {
	case <-exited:
		return false
	default:
		return true
	}
}

// CommandStats returns how often each command was called since the start or the last
// [Server.ResetStats], by its name in lower case ("evalsha", "client|setinfo"). Calls from inside
// scripts count, failed ones too, among them an EVALSHA answered by NOSCRIPT. Handshakes of
// clients and the INFO of this method appear as well.
func (s *Server) CommandStats(t testing.TB) map[string]int64 {
	t.Helper()
	calls := make(map[string]int64)
	for name, fields := range parseInfo(s.text(t, "info", "commandstats")) {
		name, isCommand := strings.CutPrefix(name, "cmdstat_")
		if !isCommand {
			continue
		}
		first, _, _ := strings.Cut(fields, ",")
		n, err := strconv.ParseInt(strings.TrimPrefix(first, "calls="), 10, 64)
		if err != nil {
			t.Fatalf("redistest: INFO commandstats of %s: %q", name, fields)
		}
		calls[name] = n
	}
	return calls
}

// ResetStats sets the counters of [Server.CommandStats] to zero.
func (s *Server) ResetStats(t testing.TB) {
	t.Helper()
	s.text(t, "config", "resetstat")
}

// text runs a command that must succeed and returns its reply as text.
func (s *Server) text(t testing.TB, args ...any) string {
	t.Helper()
	ctx, cancel := patient(t)
	defer cancel()
	reply, err := s.do(ctx, args...).Result()
	if err != nil {
		t.Fatalf("redistest: %v on %s: %v", args, s.Addr(), err)
	}
	return fmt.Sprint(reply)
}

// do runs one command on a connection of its own, once, whatever happens to it.
func (s *Server) do(ctx context.Context, args ...any) *redis.Cmd {
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Protocol: 2, DisableIdentity: true, PoolSize: 1,
		MaxRetries: -1, DialerRetries: 1, ReadTimeout: patience, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer c.Close()
	return c.Do(ctx, args...)
}

// info returns the fields of one section of INFO.
func (s *Server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.do(ctx, "info", section).Text()
	return parseInfo(text), err
}

// parseInfo splits the lines "name:value" of INFO and CLUSTER INFO.
func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); found {
			fields[name] = value
		}
	}
	return fields
}

func (s *Server) process() (*exec.Cmd, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd, s.exited
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "redis.log") }

// logTail returns what the server said last, for the message of a failed start.
func (s *Server) logTail() []byte {
	log, err := os.ReadFile(s.logPath())
	if err != nil {
		return []byte(err.Error())
	}
	return log[max(0, len(log)-2000):]
}

// choosePorts reserves the ports for as long as the server exists, dead or alive: those who still have
// the address of a killed server must find nobody there.
func (s *Server) choosePorts() error {
	var frees []func()
	s.free = sync.OnceFunc(func() {
		for _, free := range frees {
			free()
		}
	})
	for _, port := range []*int{&s.ports.client, &s.ports.bus, &s.ports.tls} {
		number, free, err := reserve()
		if err != nil {
			s.free()
			s.ports = ports{}
			return err
		}
		*port, frees = number, append(frees, free)
	}
	return nil
}
