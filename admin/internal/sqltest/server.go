package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/hosttest"
)

// patience bounds every wait for a server. Only a failure uses it up.
const patience = 2 * time.Minute

// Server is one process of a database.
type Server struct {
	dir    string
	driver string
	argv   []string
	name   func(database string) string // its location, as sqldb.Open takes it
	admin  string                       // as the driver takes it
	owner  *syscall.Credential          // nil for the user of the test

	cmd    *exec.Cmd
	exited chan struct{}
	killed bool
}

// Postgres starts a PostgreSQL, which is killed when the test ends.
func Postgres(t testing.TB) *Server {
	t.Helper()
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is right
	if len(bins) == 0 {
		skip(t, "PostgreSQL is not installed; install Debian's postgresql")
	}
	bin := slices.Max(bins)
	s := newServer(t, "postgres")
	data := filepath.Join(s.dir, "data")
	s.setUp(t, filepath.Join(bin, "initdb"), "-D", data, "-U", "weir", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	s.driver = "pgx"
	s.argv = []string{
		filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir, "-c", "listen_addresses=",
		"-c", "fsync=off", // a process that is killed loses nothing by it, a machine would
		"-c", "shared_buffers=16MB", "-c", "max_connections=60",
	}
	s.name = func(database string) string { return "postgres:///" + database + "?user=weir&host=" + s.dir }
	s.admin = s.name("postgres")
	s.Start(t)
	return s
}

// MariaDB starts a MariaDB, which is killed when the test ends.
func MariaDB(t testing.TB) *Server {
	t.Helper()
	install, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		skip(t, "MariaDB is not installed; install Debian's mariadb-server")
	}
	program, err := exec.LookPath("mariadbd")
	if err != nil {
		program = "/usr/sbin/mariadbd"
	}
	s := newServer(t, "mysql")
	data, socket := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "sock")
	// A MariaDB that starts deletes the temporary tables in its directory for them, those of others too.
	tables := "--tmpdir=" + s.dir
	s.setUp(t, install, "--no-defaults", "--datadir="+data, tables, "--skip-test-db", "--auth-root-authentication-method=normal")
	s.driver = "mysql"
	s.argv = []string{
		program, "--no-defaults", "--datadir=" + data, tables, "--socket=" + socket, "--skip-networking",
		"--pid-file=" + filepath.Join(s.dir, "pid"), "--innodb-buffer-pool-size=32M",
		"--innodb-flush-log-at-trx-commit=2", // a process that is killed loses nothing by it, a machine would
	}
	s.name = func(database string) string { return "mariadb://root@localhost/" + database + "?socket=" + socket }
	s.admin = "root@unix(" + socket + ")/"
	s.Start(t)
	return s
}

// newServer makes the directory of a server that runs as a user if the test is root. Its name is short, because that of
// a socket must be.
func newServer(t testing.TB, name string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "sqltest") //nolint:usetesting // its name would be too long
	if err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	s := &Server{dir: dir}
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir) // a file more in the temporary directory
	})
	if os.Geteuid() != 0 {
		return s
	}
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatalf("sqltest: the server does not run as root, and there is no user %q: %v", name, err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	return s
}

func (s *Server) command(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	hosttest.Tie(cmd)
	return cmd
}

// setUp runs the program that makes the server's files.
func (s *Server) setUp(t testing.TB, argv ...string) {
	t.Helper()
	ctx, cancel := patient(t)
	defer cancel()
	if out, err := s.command(ctx, argv).CombinedOutput(); err != nil {
		t.Fatalf("sqltest: %s: %v\n%s", argv[0], err, out)
	}
}

// Start starts the server, also once more after Kill, and returns when it answers. The processes of a PostgreSQL that was
// killed live on for a moment, in which another one ends at once: it is started again then.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	defer log.Close()
	ctx, cancel := patient(t)
	defer cancel()
	for {
		err := s.start(ctx, log)
		if err == nil {
			return
		}
		if !s.killed || !errors.Is(err, errEnded) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("sqltest: %s does not answer: %v; its log:\n%s", s.argv[0], err, text)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *Server) start(ctx context.Context, log *os.File) error {
	cmd := s.command(context.WithoutCancel(ctx), s.argv)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // it is killed
	}()
	s.cmd, s.exited = cmd, exited
	return s.answers(ctx)
}

// errEnded reports that a server has ended by itself.
var errEnded = errors.New("it has ended")

// answers returns when the server does.
func (s *Server) answers(ctx context.Context) error {
	db, err := sql.Open(s.driver, s.admin)
	if err != nil {
		return err
	}
	defer db.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("%w: %w", errEnded, err)
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

var databases atomic.Int64

// Database makes a database and returns its location.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	ctx, cancel := patient(t)
	defer cancel()
	db, err := sql.Open(s.driver, s.admin)
	if err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	defer db.Close()
	name := fmt.Sprintf("t%d", databases.Add(1))
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	return s.name(name)
}

// Kill kills the server, as kill -9 does.
func (s *Server) Kill() {
	if s.cmd != nil {
		s.killed = true
		_ = s.cmd.Process.Kill() // it may be gone
		<-s.exited
	}
}

// Pause stops the server's main process until Resume; of PostgreSQL, which has one for each connection, only new
// connections notice.
func (s *Server) Pause(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Resume wakes it.
func (s *Server) Resume(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("sqltest: %v", err)
	}
}

// patient bounds a wait. The test's own context has ended when a Cleanup runs.
func patient(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), patience)
}
