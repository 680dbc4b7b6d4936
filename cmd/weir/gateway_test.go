package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cmd/weir/internal/gatewayfile"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/gatewaytest"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/internal/redistest"
)

// gatewayProcess is a running weir gateway.
type gatewayProcess struct {
	*exec.Cmd

	addr string
	said *logtest.Log // its standard error
	file string
}

// startGateway starts weir gateway with a file, whose listen is on any port of loopback.
func startGateway(t *testing.T, text string) *gatewayProcess {
	t.Helper()
	p := &gatewayProcess{said: new(logtest.Log), file: filepath.Join(t.TempDir(), "gateway.yaml")}
	p.write(t, text)
	p.Cmd = exec.Command(filepath.Join(programs, "weir"), "gateway", "-drain", "1m", p.file)
	p.Stderr = p.said
	hosttest.Tie(p.Cmd)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, p.said)
	_, p.addr, _ = strings.Cut(strings.TrimSpace(line), "answers on ")
	return p
}

func (p *gatewayProcess) write(t *testing.T, text string) {
	t.Helper()
	next := p.file + ".next"
	require.NoError(t, os.WriteFile(next, []byte(text), 0o600))
	require.NoError(t, os.Rename(next, p.file))
}

// describedRequest returns a request of nginx for a check of a client's request.
func describedRequest(t *testing.T, addr, address string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
	require.NoError(t, err)
	r.RemoteAddr = "127.0.0.1:4000" // for a handler without a server
	for name, value := range map[string]string{"Method": "GET", "Uri": "/", "Host": "example.com", "Address": address} {
		r.Header.Set("X-Original-"+name, value)
	}
	return r
}

// check asks as nginx does, for a client.
func (p *gatewayProcess) check(t *testing.T, client *http.Client, address string) (status int, header http.Header) {
	t.Helper()
	r := describedRequest(t, p.addr, address)
	res, err := client.Do(r)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	_ = res.Body.Close()
	return res.StatusCode, res.Header
}

// stop stops the process by SIGSTOP, and returns when all of its threads have stopped.
func (p *gatewayProcess) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped(), "the process has ended: %v", status)
}

// eventually waits for a condition, for a minute at most.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, time.Minute, 20*time.Millisecond, what)
}

const gatewayText = `listen: 127.0.0.1:0
style: nginx
deny: 403
rules:
  - {policy: "api: 2/24h", key: ip}
`

func TestGateway(t *testing.T) {
	t.Parallel()
	p := startGateway(t, gatewayText)
	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	limit := func() string {
		_, header := p.check(t, client, "203.0.113.99")
		return header.Get("X-Ratelimit-Limit")
	}
	health := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.addr+"/healthz", nil)
		require.NoError(t, err)
		res, err := client.Do(r)
		require.NoError(t, err)
		_ = res.Body.Close()
		return res.StatusCode
	}
	assert.Equal(t, http.StatusOK, health())
	for _, want := range []int{200, 200, 403} {
		status, header := p.check(t, client, "203.0.113.7")
		assert.Equal(t, want, status)
		if want == 403 {
			assert.Equal(t, "429", header.Get("X-Weir-Status"))
		}
	}

	// HTTP/2 without TLS.
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	h2 := &http.Client{Transport: &http.Transport{Protocols: protocols}, Timeout: time.Minute}
	defer h2.CloseIdleConnections()
	status, _ := p.check(t, h2, "203.0.113.8")
	assert.Equal(t, http.StatusOK, status)

	// A bad file keeps the last good one, and its line is named.
	p.write(t, gatewayText+"  - {policy: \"site: many\", key: ip}\n")
	eventually(t, "the mistake is logged", func() bool { return len(p.said.With("gateway.yaml: line 6: ")) > 0 })
	assert.Equal(t, "2", limit())
	p.write(t, strings.Replace(gatewayText, "127.0.0.1:0", "127.0.0.2:0", 1))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	eventually(t, "listen cannot change", func() bool { return len(p.said.With("start it again to change them")) > 0 })

	// A good one is taken up, by itself and by SIGHUP, also with another algorithm under the same name.
	p.write(t, strings.Replace(gatewayText, "2/24h", "7/24h", 1))
	eventually(t, "the file was loaded again", func() bool { return limit() == "7" })
	p.write(t, strings.Replace(gatewayText, "2/24h", "9/1h fixed-window", 1))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	eventually(t, "the file was loaded again", func() bool { return limit() == "9" })

	// While it drains it still answers.
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	eventually(t, "it drains", func() bool { return health() == http.StatusServiceUnavailable })
	assert.Equal(t, "9", limit())

	// A second signal ends it.
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	select {
	case err := <-ended:
		require.NoError(t, err, p.said)
	case <-time.After(30 * time.Second):
		t.Fatal("it still drains")
	}
}

// A request that waits for its turn is answered by the file that was in use when it came.
func TestGatewayLoadsWhileRequestsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory, err := core.NewMemory(core.MemoryOptions{})
		require.NoError(t, err)
		g := &checker{store: memory, log: slog.New(slog.DiscardHandler)}
		use := func(policy string) {
			file, err := gatewayfile.Parse([]byte(strings.Replace(gatewayText, "api: 2/24h", policy, 1) + "max-wait: 30s\n"))
			require.NoError(t, err)
			g.first = file
			require.NoError(t, g.use(file))
		}
		check := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			g.ServeHTTP(w, describedRequest(t, "127.0.0.1:9090", "203.0.113.7"))
			return w
		}
		use("api: 1/10s; wait 30s")
		defer g.close()
		assert.Equal(t, http.StatusOK, check().Code)
		start := time.Now()
		waits := make(chan int, 1)
		go func() { waits <- check().Code }()
		synctest.Wait()
		use("other: 7/1m")
		assert.Equal(t, "7", check().Header().Get("X-Ratelimit-Limit"))
		assert.Equal(t, http.StatusOK, <-waits)
		assert.Equal(t, 10*time.Second, time.Since(start))
	})
}

// narrow is a listener whose connections hold little that nobody reads.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err == nil {
		err = conn.(*net.UnixConn).SetWriteBuffer(1)
	}
	return conn, err
}

// A peer that does not send the body that it has announced, and one that reads no answers, are let go. A connection
// without requests stays, and so does one whose request waits for its turn.
func TestGatewayLetsGo(t *testing.T) {
	t.Parallel()
	const again = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	h2 := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and empty SETTINGS
	for i := range 100 {
		block := "\x82\x86\x01\x01x\x04\x08/healthz" // GET, http, x and the path, by the table of HPACK
		h2 = append(h2, 0, 0, byte(len(block)), 1, 5, 0, 0, 0, byte(2*i+1))
		h2 = append(h2, block...)
	}
	const body = "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
	for name, sent := range map[string]string{"body": body, "h1": strings.Repeat(again, 1000), "h2": string(h2)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "s")
			memory, err := core.NewMemory(core.MemoryOptions{})
			require.NoError(t, err)
			g := &checker{store: memory, log: slog.New(slog.DiscardHandler)}
			g.first, err = gatewayfile.Parse([]byte(strings.NewReplacer("127.0.0.1:0", "unix:"+socket, "api: 2/24h", "api: 1/200ms; wait 10s").
				Replace(gatewayText) + "max-wait: 10s\n"))
			require.NoError(t, err)
			require.NoError(t, g.use(g.first))
			defer g.close()
			listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
			require.NoError(t, err)
			server := g.server(50 * time.Millisecond)
			closed := make(chan struct{}, 2)
			server.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateClosed {
					closed <- struct{}{}
				}
			}
			go func() { _ = server.Serve(narrow{listener}) }()
			defer func() { _ = server.Close() }()
			dial := func() net.Conn {
				conn, err := new(net.Dialer).DialContext(t.Context(), "unix", socket)
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				return conn
			}
			idle := dial()
			answers := bufio.NewReader(idle)
			ask := func(r *http.Request) {
				require.NoError(t, r.Write(idle))
				res, err := http.ReadResponse(answers, r)
				require.NoError(t, err)
				assert.Equal(t, http.StatusOK, res.StatusCode)
				_, err = io.Copy(io.Discard, res.Body)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
			}
			ask(describedRequest(t, "gateway", "203.0.113.7"))

			conn := dial()
			go func() {
				_, err := conn.Write([]byte(sent))
				for name == "body" && err == nil { // byte by byte
					<-time.After(time.Millisecond)
					_, err = conn.Write([]byte("x"))
				}
			}()
			select {
			case <-closed:
			case <-time.After(30 * time.Second):
				t.Fatal("the connection is still held")
			}
			ask(describedRequest(t, "gateway", "203.0.113.7"))
			ask(describedRequest(t, "gateway", "203.0.113.7")) // which waits for 200 ms
		})
	}
}

// It ends by itself, with nothing left, and the socket of one that was killed is no obstacle.
func TestGatewayEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "gateway.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(gatewayText, "127.0.0.1:0", "unix:"+socket, 1)), 0o600))
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}, DisableKeepAlives: true}, Timeout: time.Minute}
	for _, end := range []os.Signal{os.Kill, syscall.SIGTERM} {
		p := &gatewayProcess{addr: "gateway", said: new(logtest.Log), Cmd: exec.Command(filepath.Join(programs, "weir"), "gateway", "-drain", "0s", file)}
		p.Stderr = p.said
		hosttest.Tie(p.Cmd)
		out, err := p.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, p.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err, p.said)
		status, _ := p.check(t, client, "203.0.113.7")
		assert.Equal(t, http.StatusOK, status)
		require.NoError(t, p.Process.Signal(end))
		if err := p.Wait(); end == syscall.SIGTERM {
			require.NoError(t, err, p.said)
		}
	}
}

// Two gateways share the counts of Redis.
func TestGatewaysOfOneRedis(t *testing.T) {
	t.Parallel()
	text := gatewayText + "redis: redis://" + redistest.Single(t).Addr() + "\n"
	one, two := startGateway(t, text), startGateway(t, text)
	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for i, want := range []int{200, 200, 403, 403} {
		status, _ := []*gatewayProcess{one, two}[i%2].check(t, client, "203.0.113.7")
		assert.Equal(t, want, status)
	}
}

func TestGatewayMistakes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	for name, c := range map[string]struct{ text, want string }{
		"several":  {"listen: 9090\nstyle: apache\nrules: []\n", "gateway.yaml: line 1: listen"},
		"and next": {"listen: 9090\nstyle: apache\nrules: []\n", "gateway.yaml: line 2: style"},
		"redis":    {gatewayText + "redis: somewhere\n", "gateway.yaml: redis"},
		"permits":  {gatewayText + "  - {policy: \"two: 2 concurrent\", key: ip}\n", "line 6: gateway: Rules[1]"},
	} {
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		got := weir(t, nil, "gateway", "-check", file)
		assert.Equal(t, failed, got.code, name)
		assert.Contains(t, got.err, c.want, name)
	}
	require.NoError(t, os.WriteFile(file, []byte(gatewayText), 0o600))
	got := weir(t, nil, "gateway", "-check", file)
	assert.Equal(t, 0, got.code, got.err)
	assert.Contains(t, got.out, "without mistakes")
	got = weir(t, nil, "gateway", filepath.Join(t.TempDir(), "none"))
	assert.Equal(t, failed, got.code)
}

// The steps of docs/gateways.md lead to what they promise.
func TestGatewayInFiveSteps(t *testing.T) {
	t.Parallel()
	module, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	path, _, _ := strings.Cut(strings.TrimPrefix(string(module), "module "), "\n")
	assert.Equal(t, "go install "+path+"@latest\n", gatewaytest.Documented(t, "sh: install"))
	assert.Equal(t, "weir gateway gateway.yaml\n", gatewaytest.Documented(t, "sh: start"))
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(service.Close)
	p := startGateway(t, strings.Replace(gatewaytest.Documented(t, "weir: first file"), "127.0.0.1:9090", "127.0.0.1:0", 1))
	front := gatewaytest.Nginx(t, strings.NewReplacer("127.0.0.1:9090", p.addr, "127.0.0.1:8080", service.Listener.Addr().String(),
		"_timeout 250ms;", "_timeout 1m;", "_timeout 1s;", "_timeout 1m;").Replace(gatewaytest.Documented(t, "nginx: whole")))
	commands, want, _ := strings.Cut(gatewaytest.Documented(t, "sh: try"), "# ")
	require.Contains(t, commands, "http://127.0.0.1/")
	try := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(commands, "127.0.0.1", front.Addr(false), 1))
	out, err := try.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, strings.TrimSpace(want), strings.TrimSpace(string(out)))
}

// The gateways of docs/gateways.md do what is chosen there when the process is stopped, or killed.
func TestGatewayIsStopped(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(service.Close)
	for name, c := range map[string]struct {
		style string
		want  int
		start func(t *testing.T, addresses *strings.Replacer) *gatewaytest.Server
	}{
		"nginx": {"nginx", http.StatusServiceUnavailable, func(t *testing.T, addresses *strings.Replacer) *gatewaytest.Server {
			return gatewaytest.Nginx(t, addresses.Replace(gatewaytest.Documented(t, "nginx: whole")))
		}},
		"nginx that passes": {"nginx", http.StatusOK, func(t *testing.T, addresses *strings.Replacer) *gatewaytest.Server {
			return gatewaytest.Nginx(t, addresses.Replace(gatewaytest.Passing(t)))
		}},
		"caddy": {"forwarded", http.StatusServiceUnavailable, func(t *testing.T, addresses *strings.Replacer) *gatewaytest.Server {
			return gatewaytest.Caddy(t, addresses.Replace(gatewaytest.Documented(t, "caddy: short")))
		}},
		"caddy with headers": {"forwarded", http.StatusServiceUnavailable, func(t *testing.T, addresses *strings.Replacer) *gatewaytest.Server {
			return gatewaytest.Caddy(t, addresses.Replace(gatewaytest.Documented(t, "caddy: long")))
		}},
		"caddy that passes": {"forwarded", http.StatusOK, func(t *testing.T, addresses *strings.Replacer) *gatewaytest.Server {
			return gatewaytest.Caddy(t, addresses.Replace(gatewaytest.Documented(t, "caddy: that passes")))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(strings.Replace(gatewayText, "style: nginx", "style: "+c.style, 1), "key: ip", "key: header X-Who", 1)
			if c.style != "nginx" {
				text = strings.Replace(text, "deny: 403\n", "", 1)
			}
			p := startGateway(t, text)
			front := c.start(t, strings.NewReplacer("127.0.0.1:9090", p.addr, "127.0.0.1:8080", service.Listener.Addr().String()))
			client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
			get := func(who string) int {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+front.Addr(false)+"/", nil)
				require.NoError(t, err)
				r.Header.Set("X-Who", who)
				res, err := client.Do(r)
				require.NoError(t, err)
				_ = res.Body.Close()
				return res.StatusCode
			}
			limits := func(what string) {
				eventually(t, what, func() bool { // on a busy machine a check may take longer than the timeout
					who := strconv.FormatUint(rand.Uint64(), 36)
					return slices.Equal([]int{get(who), get(who), get(who)}, []int{200, 200, 429})
				})
			}
			limits("it limits")
			p.stop(t)
			for range 3 {
				assert.Equal(t, c.want, get("ann"), "the process hangs")
			}
			require.NoError(t, p.Process.Signal(syscall.SIGCONT))
			limits("it limits again")
			require.NoError(t, p.Process.Kill())
			_ = p.Wait() // it was killed
			for range 3 {
				assert.Equal(t, c.want, get("ann"), "the process was killed")
			}
		})
	}
}
