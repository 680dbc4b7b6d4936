package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name under which a [Sentinel] knows its master.
const MasterName = "weir"

// errNotReported says that Sentinel still reports another master.
var errNotReported = errors.New("no failover yet")

// Sentinel is a master and a replica, watched by one Sentinel process that decides alone.
type Sentinel struct {
	monitor *Server
	args    []string // of master and replica

	mu              sync.Mutex
	master, replica *Server
}

// StartSentinel starts the three processes and returns when the replica is in sync and Sentinel
// knows it, so that a failover can begin at once. The args are passed to master and replica; with
// [Certificate.Args] among them all three talk by TLS, to each other too, and Sentinel names the
// addresses for it.
func StartSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	ctx, cancel := patient(t)
	defer cancel()
	// A replica is served at once instead of waiting five seconds for more of them to come.
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	if secure(args) {
		args = append([]string{"--tls-replication", "yes"}, args...)
	}
	s := &Sentinel{args: args}
	s.master = Single(t, args...)
	s.replica = Single(t, append([]string{"--replicaof", "127.0.0.1", strconv.Itoa(s.port(s.master))}, args...)...)
	if err := poll(ctx, 10*time.Millisecond, func() error { return s.inSync(ctx) }); err != nil {
		t.Fatalf("redistest: the replica: %v", err)
	}
	// Sentinel asks a master for its replicas only once in ten seconds: there must be one by then.
	s.monitor = s.startMonitor(t)
	s.hurry(ctx)
	s.awaitReplica(ctx, t)
	return s
}

// startMonitor starts the Sentinel process. It insists on a configuration file that it may write.
//
// A master counts as down after ten seconds: a busy machine must not bring about a failover that
// nobody has asked for.
func (s *Sentinel) startMonitor(t testing.TB) *Server {
	t.Helper()
	dir := t.TempDir()
	return startServer(t, func(p ports) ([]string, error) {
		path := filepath.Join(dir, "sentinel.conf")
		config := fmt.Sprintf(`port %[1]d
bind 127.0.0.1
protected-mode no
dir %[4]q
sentinel monitor %[2]s 127.0.0.1 %[3]d 1
sentinel down-after-milliseconds %[2]s 10000
sentinel failover-timeout %[2]s 3000
`, p.client, MasterName, s.port(s.master), dir)
		if secure(s.args) {
			lines := []string{fmt.Sprintf("tls-port %d", p.tls)}
			for i, arg := range s.args {
				if name, ok := strings.CutPrefix(arg, "--tls-"); ok {
					lines = append(lines, fmt.Sprintf("tls-%s %q", name, s.args[i+1]))
				}
			}
			config += strings.Join(lines, "\n") + "\n"
		}
		return []string{path, "--sentinel"}, os.WriteFile(path, []byte(config), 0o600)
	})
}

// hurry shortens the periods at which Sentinel looks around, from up to ten seconds. It is an
// extra: a version without the command is slower but right, so the answer does not matter.
//
// The info period is not shorter because a replica is no candidate once its INFO is three periods
// old. The ping period is left alone for a like reason: five of them, while INFO is sent but once
// a second during a failover. The tilt period is the time for which Sentinel does nothing after a stall.
func (s *Sentinel) hurry(ctx context.Context) {
	s.monitor.do(ctx, "sentinel", "debug", "info-period", 300, "publish-period", 100, "tilt-period", 1000)
}

// inSync returns nil once the replica follows the master.
func (s *Sentinel) inSync(ctx context.Context) error {
	info, err := s.replica.info(ctx, "replication")
	if err == nil && info["master_link_status"] != "up" {
		err = fmt.Errorf("link %s", info["master_link_status"])
	}
	if err != nil {
		return err
	}
	info, err = s.master.info(ctx, "replication")
	if err == nil && !strings.Contains(info["slave0"], "state=online") {
		err = fmt.Errorf("the master sees %q", info["slave0"])
	}
	return err
}

// replicaKnown returns nil once Sentinel has read the replica's own account of itself, without
// which it would not promote it.
func (s *Sentinel) replicaKnown(ctx context.Context) error {
	replies, err := s.monitor.do(ctx, "sentinel", "replicas", MasterName).Slice()
	if err != nil {
		return err
	}
	for _, reply := range replies {
		pairs := reply.([]any)
		fields := make(map[string]string, len(pairs)/2)
		for i := 0; i+1 < len(pairs); i += 2 {
			fields[pairs[i].(string)] = pairs[i+1].(string)
		}
		if fields["flags"] == "slave" && fields["master-link-status"] == "ok" {
			return nil
		}
		err = fmt.Errorf("replica %s, link %s", fields["flags"], fields["master-link-status"])
	}
	if err == nil {
		err = fmt.Errorf("knows no replica")
	}
	return err
}

// Addr returns the address of the Sentinel process, that for TLS if there is a certificate.
func (s *Sentinel) Addr() string { return s.addr(s.monitor) }

// addr returns the address at which clients find a server.
func (s *Sentinel) addr(of *Server) string {
	if secure(s.args) {
		return of.TLSAddr()
	}
	return of.Addr()
}

// port is the one at which the three call each other.
func (s *Sentinel) port(of *Server) int {
	if secure(s.args) {
		return of.ports.tls
	}
	return of.ports.client
}

// Master returns the server that is the master now.
func (s *Sentinel) Master() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.master
}

// Replica returns the other server. After a failover that is the killed master.
func (s *Sentinel) Replica() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replica
}

// Client returns a failover client with ContextTimeoutEnabled and the default options of go-redis, changed by mods. It is
// closed when the test ends.
func (s *Sentinel) Client(t testing.TB, mods ...func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	opts := &redis.FailoverOptions{MasterName: MasterName, SentinelAddrs: []string{s.Addr()}, ContextTimeoutEnabled: true}
	for _, mod := range mods {
		mod(opts)
	}
	c := redis.NewFailoverClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Failover kills the master and returns when Sentinel has made the replica the master and says so.
// It does not wait until Sentinel finds the master dead, as one must after a Kill or a Pause of it.
//
// The killed server stays down, so that a test can look at what became of its data; after
// [Server.Restart] it comes back empty. [Sentinel.Rejoin] restarts it and waits until it is a
// replica, after which Failover may be called again.
func (s *Sentinel) Failover(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master.Kill()
	ctx, cancel := patient(t)
	defer cancel()
	s.promote(ctx, t)
}

// Switch has Sentinel make the replica the master while the master lives, as for maintenance, and
// returns when the former master follows the new one. What was written to it after the other one's
// promotion is lost.
func (s *Sentinel) Switch(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := patient(t)
	defer cancel()
	s.promote(ctx, t)
	s.awaitReplica(ctx, t)
}

// promote makes the replica the master.
func (s *Sentinel) promote(ctx context.Context, t testing.TB) {
	t.Helper()
	if !s.replica.Running() {
		t.Fatal("redistest: no replica to fail over to")
	}
	if err := poll(ctx, 10*time.Millisecond, func() error {
		err := s.promoted(ctx)
		if errors.Is(err, errNotReported) {
			// Refused while it is in progress, and needed again if it was given up. Too late a
			// command does no harm: the dead server is no candidate.
			s.monitor.do(ctx, "sentinel", "failover", MasterName)
		}
		return err
	}); err != nil {
		t.Fatalf("redistest: failover: %v", err)
	}
	s.master, s.replica = s.replica, s.master
}

// Rejoin restarts the server that a failover has left behind and returns when it follows the new
// master and Sentinel knows.
func (s *Sentinel) Rejoin(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replica.Restart(t)
	ctx, cancel := patient(t)
	defer cancel()
	s.awaitReplica(ctx, t)
}

// awaitReplica waits until a failover is possible.
func (s *Sentinel) awaitReplica(ctx context.Context, t testing.TB) {
	t.Helper()
	if err := poll(ctx, 10*time.Millisecond, func() error { return s.inSync(ctx) }); err != nil {
		t.Fatalf("redistest: the replica: %v", err)
	}
	if err := poll(ctx, 10*time.Millisecond, func() error { return s.replicaKnown(ctx) }); err != nil {
		t.Fatalf("redistest: sentinel: %v", err)
	}
}

// promoted returns nil once the replica is a master, in its own view and in Sentinel's.
func (s *Sentinel) promoted(ctx context.Context) error {
	addr, err := s.monitor.do(ctx, "sentinel", "get-master-addr-by-name", MasterName).StringSlice()
	if err != nil {
		return err
	}
	if len(addr) != 2 || net.JoinHostPort(addr[0], addr[1]) != s.addr(s.replica) {
		return fmt.Errorf("%w: sentinel reports %v, not %s", errNotReported, addr, s.addr(s.replica))
	}
	info, err := s.replica.info(ctx, "replication")
	if err == nil && info["role"] != "master" {
		err = fmt.Errorf("%s is a %s", s.replica.Addr(), info["role"])
	}
	return err
}
