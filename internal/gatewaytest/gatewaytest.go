// Package gatewaytest starts nginx and Caddy for tests, on free ports and with their files in the test's directory.
package gatewaytest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is a gateway that runs until the test ends.
type Server struct {
	// Port is that on which it listens, on 127.0.0.1 and ::1.
	Port int
}

// Addr returns an address of the gateway: that on ::1 for IPv6.
func (s *Server) Addr(ipv6 bool) string {
	if ipv6 {
		return net.JoinHostPort("::1", strconv.Itoa(s.Port))
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port))
}

// Nginx starts nginx with two workers and the blocks of its context http, whose "listen 80;" becomes that of the server's
// port, and "listen 80 http2;" that for HTTP/2 without TLS. A test without nginx is skipped, or fails where
// WEIR_REQUIRE_GATEWAYS is set.
func Nginx(t testing.TB, blocks string) *Server {
	t.Helper()
	program := find(t, "nginx", "/usr/sbin/nginx")
	return start(t, program, func(dir string, port int) (string, []string) {
		listen := strings.NewReplacer(
			"listen 80;", fmt.Sprintf("listen 127.0.0.1:%d; listen [::1]:%d;", port, port),
			"listen 80 http2;", fmt.Sprintf("listen 127.0.0.1:%d http2; listen [::1]:%d http2;", port, port),
		)
		user := ""
		if os.Getuid() == 0 { // or its workers could not read the test's directory
			user = "user root;\n"
		}
		var temp strings.Builder
		for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			fmt.Fprintf(&temp, "%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
		}
		config := user + "daemon off;\nworker_processes 2;\npid " + filepath.Join(dir, "pid") + ";\nerror_log stderr;\n" +
			"events { worker_connections 512; }\nhttp {\naccess_log off;\n" + temp.String() + listen.Replace(blocks) + "\n}\n"
		file := filepath.Join(dir, "nginx.conf")
		return config, []string{"-p", dir, "-e", "stderr", "-c", file}
	}, "nginx.conf")
}

// Caddy starts Caddy with a Caddyfile, whose ":80 {" becomes that of the server's port, and with lines of the global
// options. A test without Caddy is skipped, or fails where WEIR_REQUIRE_GATEWAYS is set.
func Caddy(t testing.TB, caddyfile string, options ...string) *Server {
	t.Helper()
	program := find(t, "caddy", "/usr/bin/caddy")
	return start(t, program, func(dir string, port int) (string, []string) {
		config := "{\n\tadmin off\n\tauto_https off\n\tdefault_bind 127.0.0.1 [::1]\n" + strings.Join(options, "\n") + "\n}\n" +
			strings.ReplaceAll(caddyfile, ":80 {", fmt.Sprintf(":%d {", port))
		return config, []string{"run", "--adapter", "caddyfile", "--config", filepath.Join(dir, "Caddyfile")}
	}, "Caddyfile")
}

// find returns the path of a program, and skips the test without it.
func find(t testing.TB, name, path string) string {
	t.Helper()
	if found, err := exec.LookPath(name); err == nil {
		return found
	}
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if os.Getenv("WEIR_REQUIRE_GATEWAYS") != "" {
		t.Fatalf("gatewaytest: there is no %s, and WEIR_REQUIRE_GATEWAYS is set", name)
	}
	t.Skipf("there is no %s; install it to run this test", name)
	return ""
}

// patience bounds the start and the end of a gateway on a busy machine.
const patience = time.Minute

// start starts the program with the file that write writes for a port, until it listens there.
func start(t testing.TB, program string, write func(dir string, port int) (config string, args []string), name string) *Server {
	t.Helper()
	var problem string
	for range 5 { // somebody else may take the port first
		port := FreePort(t)
		dir := t.TempDir()
		config, args := write(dir, port)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if problem = run(t, program, dir, args, port); problem == "" {
			return &Server{port}
		}
	}
	t.Fatalf("gatewaytest: %s does not start:\n%s", program, problem)
	return nil
}

// ports are those that FreePort has returned.
var ports sync.Map

// FreePort returns a port that is free on 127.0.0.1 and ::1, and which no listener of another test takes meanwhile: it
// is none of those that systems choose. Two that listen on one port would share its connections, as Caddy lets them.
func FreePort(t testing.TB) int {
	t.Helper()
	const first, last = 20_000, 32_000
	for range 100 {
		port := first + rand.IntN(last-first)
		if _, used := ports.LoadOrStore(port, true); used {
			continue
		}
		free := true
		for _, host := range []string{"127.0.0.1", "::1"} {
			l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
			if err != nil {
				free = false
				continue
			}
			_ = l.Close()
		}
		if free {
			return port
		}
	}
	t.Fatalf("gatewaytest: no port from %d to %d is free on 127.0.0.1 and ::1", first, last)
	return 0
}

// run starts the process and waits until the port answers. It returns the log of one that ends before.
func run(t testing.TB, program, dir string, args []string, port int) (problem string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	group(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // it is always stopped
	}()
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(patience):
		}
		kill(cmd)
		<-exited
	}
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		select {
		case <-exited:
			text, _ := os.ReadFile(log.Name()) // it may be empty
			return string(text)
		default:
		}
		// Nothing is sent, which the limits of the test would count.
		if conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), patience); err == nil {
			_ = conn.Close()
			t.Cleanup(stop)
			t.Cleanup(func() {
				if t.Failed() {
					text, _ := os.ReadFile(log.Name()) // as above
					t.Logf("the log of %s:\n%s", program, text)
				}
			})
			return ""
		}
		<-time.After(10 * time.Millisecond)
	}
	stop()
	return "it does not answer"
}
