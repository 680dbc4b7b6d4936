package redistest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Loss is the way in which a connection is lost.
type Loss int

const (
	// EOF closes the connection in order: the client reads EOF.
	EOF Loss = iota + 1
	// RST resets the connection: the client's read fails with ECONNRESET.
	RST
	// Hang keeps the connection open and silent for good: the client runs into its timeout.
	Hang
)

// Proxy is a TCP proxy inside the test that injects faults between clients and servers. There are
// two ways through it, which share the faults:
//
//   - Connections to [Proxy.Addr] go to the one backend given to [NewProxy].
//   - [Proxy.Dial] is the Dialer of a client's options and goes to whatever address the client
//     asks for. Clients of a Cluster or of Sentinel need it, since they learn the real addresses
//     of their servers and would leave a proxied address behind.
//
// Both lead through real sockets, which matters because go-redis looks into the socket of an idle
// connection before it uses it. Dial does not do TLS, which go-redis leaves to a Dialer: with TLS,
// connect to Addr.
//
// A proxy begins by passing everything. Faults may be changed at any time, by any goroutine. One
// of Blackhole, Refuse, Reset and LoseReplies holds at a time, the latest; Latency, Bandwidth and the
// armed replies of LoseNextReply are independent of them. Pass ends them all.
type Proxy struct {
	t       testing.TB
	backend string
	addr    string
	meeting net.Listener // where Dial connects to itself to make a pair of sockets
	pairing sync.Mutex   // held while a pair is made, so that the two ends belong together
	running sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	listener net.Listener // nil while refusing
	links    map[*link]struct{}
	cuts     int  // how often all connections were ended
	cut      Loss // how, the last time
	fault    fault
	loss     Loss // of LoseReplies
	latency  time.Duration
	perByte  time.Duration // of Bandwidth
	armed    []armedLoss
	accepted int
	lost     int
}

type fault int

const (
	passing fault = iota
	blackhole
	refusing
	resetting
	losing
)

// armedLoss waits for the next request that contains match.
type armedLoss struct {
	match []byte // in lower case
	how   Loss
}

// link is a client's connection and the one to the server behind it.
type link struct {
	client, server net.Conn // server is nil if the link was born in a black hole
	over           sync.Once
	done           chan struct{}

	// Guarded by Proxy.mu.
	deaf bool // requests reach nobody, and no reply comes back
	mute bool // no reply comes back
	lose Loss // how the next reply is lost, 0 if it is not
}

// end closes both connections; a second call does nothing.
func (l *link) end(how Loss) {
	l.over.Do(func() {
		close(l.done)
		hangUp(l.client, how)
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}

// lost ends the link as how says; Proxy.mu is held.
func (l *link) lost(how Loss) {
	if how == Hang {
		l.deaf = true
		return
	}
	l.end(how)
}

// hangUp closes conn as how says.
func hangUp(conn net.Conn, how Loss) {
	if tcp, ok := conn.(*net.TCPConn); ok && how == RST {
		_ = tcp.SetLinger(0) // turns the close into a reset
	}
	_ = conn.Close()
}

// NewProxy starts a proxy in front of backend, an address like that of [Server.Addr]. It ends with
// the test, and its connections and goroutines with it.
func NewProxy(t testing.TB, backend string) *Proxy {
	t.Helper()
	port, free, err := reserve()
	if err != nil {
		t.Fatalf("redistest: proxy: %v", err)
	}
	t.Cleanup(free)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("redistest: proxy: %v", err)
	}
	meeting, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: proxy: %v", err)
	}
	p := &Proxy{
		t: t, backend: backend, addr: addr, meeting: meeting,
		links: make(map[*link]struct{}),
	}
	p.mu.Lock()
	p.listen(listener)
	p.mu.Unlock()
	t.Cleanup(p.close)
	return p
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	_ = p.meeting.Close()
	if p.listener != nil {
		_ = p.listener.Close()
	}
	for l := range p.links {
		l.end(EOF)
	}
	p.mu.Unlock()
	p.running.Wait()
}

// Addr returns the proxy's own address. It stays the same while connections are refused.
func (p *Proxy) Addr() string { return p.addr }

// Dial connects to addr through the proxy; give it to a client as Options.Dialer. As the server is
// dialled first, a dead one is refused as it would be without the proxy, whereas a connection to
// [Proxy.Addr] is accepted and then reset.
func (p *Proxy) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	server, since, err := p.reach(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	near, far, err := p.pair(ctx)
	if err != nil {
		if server != nil {
			_ = server.Close()
		}
		return nil, err
	}
	p.join(far, server, since)
	return near, nil
}

// Pass takes away every fault, also those armed and not yet hit. Connections that a fault has
// silenced stay silent: what was lost in them does not come back.
func (p *Proxy) Pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency, p.perByte, p.armed = 0, 0, nil
	for l := range p.links {
		l.lose = 0
	}
	p.set(passing)
}

// Blackhole swallows what clients and servers send. Connections stay open and new ones are
// accepted, but no request is ever executed: a connection that was used meanwhile stays dead even
// after [Proxy.Pass], whereas one that was idle survives.
func (p *Proxy) Blackhole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(blackhole)
}

// Refuse lets the kernel refuse new connections (ECONNREFUSED). Those that exist go on; call
// [Proxy.Disconnect] to end them.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(refusing)
}

// Reset resets all connections, and new ones as soon as they are accepted.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(resetting)
	p.disconnect(RST)
}

// LoseReplies lets requests reach the server, which executes them, and loses every reply. That
// includes the replies to a new connection's handshake; use [Proxy.LoseNextReply] to lose those of
// one command only.
func (p *Proxy) LoseReplies(how Loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loss = how
	p.set(losing)
}

// LoseNextReply loses the reply to the next request that contains match in any case, such as
// "evalsha", after the server has executed it. A client writes a request at once, so a
// pipeline that contains match loses all of its replies. Every call arms one more loss; each is
// used once, in the order of arming. Whether it was used shows in [Proxy.Lost].
func (p *Proxy) LoseNextReply(match string, how Loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, armedLoss{bytes.ToLower([]byte(match)), how})
}

// Latency delays what is sent from now on by d, in each direction, so that a round trip takes 2d
// longer. It keeps the order. Establishing a connection is not delayed. A request that is under
// way arrives, and is executed, even if the client has given up meanwhile.
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// Bandwidth lets no more than so many bytes a second through each connection, in each direction. What is
// sent at once arrives at once, when the last byte of it has passed. 0 means as many as there are.
func (p *Proxy) Bandwidth(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.perByte = 0; bytesPerSecond > 0 {
		p.perByte = time.Second / time.Duration(bytesPerSecond)
	}
}

// Disconnect ends the connections that exist now, as a load balancer does with idle ones; with
// Hang they stay open but nothing passes any more. New connections are not affected.
func (p *Proxy) Disconnect(how Loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnect(how)
}

// disconnect ends the connections that exist, and those that are just being made; p.mu is held.
func (p *Proxy) disconnect(how Loss) {
	p.cuts++
	p.cut = how
	for l := range p.links {
		l.lost(how)
	}
}

// Accepted returns how many connections were accepted so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Lost returns how many replies were lost so far, by whichever fault.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// set changes the fault; p.mu is held.
func (p *Proxy) set(f fault) {
	p.fault = f
	switch {
	case p.closed:
	case f == refusing && p.listener != nil:
		stopListening(p.listener)
		_ = p.listener.Close()
		p.listener = nil
	case f != refusing && p.listener == nil:
		// Somebody may have been given the port as the local end of a connection: wait for it.
		ctx, cancel := patient(p.t)
		defer cancel()
		err := poll(ctx, time.Millisecond, func() error {
			listener, err := net.Listen("tcp", p.addr)
			if err == nil {
				p.listen(listener)
			}
			return err
		})
		if err != nil {
			p.t.Errorf("redistest: proxy: the port is lost: %v", err)
		}
	}
}

// listen accepts connections to Addr; p.mu is held.
func (p *Proxy) listen(listener net.Listener) {
	p.listener = listener
	p.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() {
				// Bounded, because the end of the proxy waits for it. On the loopback a dial
				// either succeeds or fails at once, unless the server's backlog is full.
				ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
				defer cancel()
				server, since, err := p.reach(ctx, "tcp", p.backend)
				if err != nil {
					hangUp(client, RST)
					return
				}
				p.join(client, server, since)
			})
		}
	})
}

// reach connects to a server. It returns nil instead of a connection if the fault of the moment
// leaves the server out. since is for join.
func (p *Proxy) reach(ctx context.Context, network, addr string) (server net.Conn, since int, err error) {
	p.mu.Lock()
	fault, closed, since := p.fault, p.closed, p.cuts
	p.mu.Unlock()
	switch {
	case closed:
		return nil, since, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
	case fault == refusing:
		return nil, since, &net.OpError{
			Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
		}
	case fault == blackhole || fault == resetting:
		return nil, since, nil
	}
	server, err = new(net.Dialer).DialContext(ctx, network, addr)
	return server, since, err
}

// pair makes two sockets that are connected to each other.
func (p *Proxy) pair(ctx context.Context) (near, far net.Conn, err error) {
	p.pairing.Lock()
	defer p.pairing.Unlock()
	near, err = new(net.Dialer).DialContext(ctx, "tcp", p.meeting.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	for {
		far, err = p.meeting.Accept()
		if err != nil {
			_ = near.Close()
			return nil, nil, err
		}
		if far.RemoteAddr().String() == near.LocalAddr().String() {
			return near, far, nil
		}
		_ = far.Close() // a connection that was given up before it was accepted
	}
}

// join moves bytes between the two connections until one ends. A nil server stands for a link that
// began in a black hole. If all connections were ended since the server was reached, this one is too.
func (p *Proxy) join(client, server net.Conn, since int) {
	l := &link{client: client, server: server, done: make(chan struct{}), deaf: server == nil}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	if p.closed || p.fault == resetting {
		l.end(RST)
		return
	}
	p.links[l] = struct{}{}
	if p.cuts != since {
		l.lost(p.cut)
	}
	p.running.Go(func() {
		defer p.leave(l)
		p.requests(l)
	})
	if server != nil {
		p.running.Go(func() { p.replies(l) })
	}
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// requests carries what the client sends until it closes the connection.
func (p *Proxy) requests(l *link) {
	defer l.end(EOF)
	buf := make([]byte, 64<<10)
	var seen []byte // the end of what was sent before, since a read may cut a command in two
	for {
		n, err := l.client.Read(buf)
		if n > 0 {
			if !p.delay(l, n) {
				return
			}
			var forward bool
			forward, seen = p.request(l, seen, buf[:n])
			if forward {
				if _, err := l.server.Write(buf[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// request decides what becomes of a piece of a request, before it is sent on: the reply must not
// be able to overtake the decision to lose it. It returns what to give as seen the next time.
func (p *Proxy) request(l *link, seen, piece []byte) (forward bool, _ []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == blackhole {
		l.deaf = true
	}
	if l.deaf {
		return false, nil
	}
	piece = bytes.ToLower(piece)
	for i, a := range p.armed {
		// Less than a whole match is taken from before: a whole one was not armed at its time.
		before := seen[max(0, len(seen)-max(0, len(a.match)-1)):]
		if bytes.Contains(append(bytes.Clone(before), piece...), a.match) {
			l.lose = a.how
			p.armed = append(p.armed[:i:i], p.armed[i+1:]...)
			return true, nil
		}
	}
	seen = append(seen, piece...)
	return true, seen[max(0, len(seen)-64):]
}

// replies carries what the server sends until it closes the connection.
func (p *Proxy) replies(l *link) {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if n > 0 {
			if !p.delay(l, n) {
				return
			}
			switch how := p.reply(l); how {
			case 0:
				if _, err := l.client.Write(buf[:n]); err != nil {
					l.end(EOF)
					return
				}
			case Hang:
			default:
				l.end(how)
				return
			}
		}
		if err != nil {
			how := EOF
			if errors.Is(err, syscall.ECONNRESET) {
				how = RST
			}
			l.end(how)
			return
		}
	}
}

// reply decides how a piece of a reply is lost, 0 if it is not. A link that has lost one by Hang
// loses all that follow, because the client would take a later reply for the lost one.
func (p *Proxy) reply(l *link) Loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	how := l.lose
	l.lose = 0
	switch {
	case l.deaf || l.mute || p.fault == blackhole:
		how = Hang
	case how == 0 && p.fault == losing:
		how = p.loss
	}
	if how != 0 {
		p.lost++
		l.mute = true
	}
	l.deaf = l.deaf || p.fault == blackhole
	return how
}

// delay waits for as long as n bytes take at the moment, and reports whether the link still exists.
func (p *Proxy) delay(l *link, n int) bool {
	p.mu.Lock()
	d := p.latency + time.Duration(n)*p.perByte
	p.mu.Unlock()
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}
