//go:build !386

package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
	"unsafe"

	"github.com/weir-go/weir/internal/hosttest"
)

// childEnv names the task of a process that is the relay of a network: its delay.
const childEnv = "WEIR_NETWORK_RELAY"

// Child does the work of a network if [Start] has started this process for that, until its standard input ends. It
// reports whether that was so. A program that uses a network calls it in main or TestMain.
func Child() (isChild bool, err error) {
	var delay time.Duration
	if isChild, err = hosttest.Task(childEnv, &delay); !isChild || err != nil {
		return isChild, err
	}
	r := relay{delay: delay, began: time.Now(), links: map[int]*link{}}
	addr, err := r.open()
	if err != nil {
		return true, err
	}
	if err := json.NewEncoder(os.Stdout).Encode(addr); err != nil {
		return true, err
	}
	return true, r.run()
}

// relay holds the answers of servers for a delay. It is a loop of system calls in one thread, as the runtime's timers
// are exact to a millisecond where nothing else runs. The frequent calls are RawSyscall6, which keep the runtime's
// processor even while ppoll waits for what is due: nothing else runs here, and the collector is off.
//
// Epoll says which sockets are ready, as a poll of a hundred of them takes 8 microseconds. It has no exact timeout before
// Linux 5.11, and ppoll has.
type relay struct {
	delay  time.Duration
	began  time.Time // all times are since then
	epoll  int
	orders int           // a datagram socket, each of whose messages has the descriptors of a link
	links  map[int]*link // by both descriptors

	held  []packet // in order, since all are held equally long
	first int      // of those that are still held
	spare [][]byte // buffers to use again
}

// link is a connection of a client with a server. Its descriptors are -1 when they are closed.
type link struct {
	server int
	client int
	rest   []byte // due, and not written yet
	ended  bool   // by the server: nothing comes after the rest
}

// packet is a piece of an answer, or with no data the end of the connection.
type packet struct {
	due  time.Duration
	link *link
	data []byte
}

// open makes the sockets of the relay and returns its address.
func (r *relay) open() (addr string, err error) {
	if r.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return "", os.NewSyscallError("epoll_create1", err)
	}
	r.orders, err = syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", os.NewSyscallError("socket", err)
	}
	if err := syscall.Bind(r.orders, &syscall.SockaddrUnix{}); err != nil { // the kernel finds a name, of no file
		return "", os.NewSyscallError("bind", err)
	}
	bound, err := syscall.Getsockname(r.orders)
	if err != nil {
		return "", os.NewSyscallError("getsockname", err)
	}
	unix, ok := bound.(*syscall.SockaddrUnix)
	if !ok {
		return "", fmt.Errorf("the address of a unix socket is a %T", bound)
	}
	return unix.Name, errors.Join(
		r.watch(syscall.EPOLL_CTL_ADD, syscall.Stdin, syscall.EPOLLIN),
		r.watch(syscall.EPOLL_CTL_ADD, r.orders, syscall.EPOLLIN),
	)
}

// run relays until the standard input ends.
func (r *relay) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	debug.SetGCPercent(-1) // it would interrupt; what is left behind is some bytes for each connection
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, syscall.PR_SET_TIMERSLACK, 1, 0, 0, 0, 0); errno != 0 {
		return os.NewSyscallError("prctl", errno)
	}
	var events [64]syscall.EpollEvent
	for {
		r.deliver()
		n := r.wait(events[:])
		due, ordered := time.Since(r.began)+r.delay, false
		for _, e := range events[:n] {
			fd := int(e.Fd)
			l := r.links[fd] // nil if it was dropped for an event before
			switch {
			case fd == syscall.Stdin:
				return nil
			case fd == r.orders:
				ordered = true
			case l == nil:
			case fd == l.server:
				r.read(l, due)
			case e.Events&(syscall.EPOLLHUP|syscall.EPOLLERR) != 0: // the client has closed it
				r.drop(l)
			default:
				_ = r.watch(syscall.EPOLL_CTL_MOD, l.client, 0)
				r.write(l)
			}
		}
		if ordered { // last: a new descriptor may have the number of one that an event was about
			if err := r.admit(); err != nil {
				return err
			}
		}
	}
}

// wait waits for events until the next packet is due, and returns their number.
func (r *relay) wait(events []syscall.EpollEvent) int {
	var timeout *syscall.Timespec
	if r.first < len(r.held) {
		t := syscall.NsecToTimespec(max(0, r.held[r.first].due-time.Since(r.began)).Nanoseconds())
		timeout = &t
	}
	// A signal ends it, and there is no event then.
	ready := struct {
		fd            int32
		events, found int16
	}{fd: int32(r.epoll), events: syscall.EPOLLIN}
	ppoll := syscall.RawSyscall6
	if timeout == nil { // it may take long, and the runtime would interrupt the thread a hundred times a second
		ppoll = syscall.Syscall6
	}
	n, _, errno := ppoll(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&ready)), 1, uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
	if errno != 0 || n == 0 {
		return 0
	}
	n, _, errno = syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT,
		uintptr(r.epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// admit takes the descriptors of a link.
func (r *relay) admit() error {
	control := make([]byte, syscall.CmsgSpace(2*4)) // two descriptors
	_, n, _, _, err := syscall.Recvmsg(r.orders, nil, control, syscall.MSG_CMSG_CLOEXEC)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		return nil
	}
	var fds []int
	messages, parsed := syscall.ParseSocketControlMessage(control[:n])
	if len(messages) == 1 {
		fds, parsed = syscall.ParseUnixRights(&messages[0])
	}
	if err := errors.Join(os.NewSyscallError("recvmsg", err), parsed); err != nil || len(fds) != 2 {
		return fmt.Errorf("a message has %d of the two descriptors of a link: %w", len(fds), err)
	}
	l := &link{server: fds[0], client: fds[1]}
	r.links[l.server], r.links[l.client] = l, l
	return errors.Join(
		r.watch(syscall.EPOLL_CTL_ADD, l.server, syscall.EPOLLIN),
		r.watch(syscall.EPOLL_CTL_ADD, l.client, 0), // for its end
	)
}

// read reads from the server, once: what else there is makes another event.
func (r *relay) read(l *link, due time.Duration) {
	var b []byte
	if last := len(r.spare) - 1; last >= 0 {
		b, r.spare = r.spare[last], r.spare[:last]
	} else {
		b = make([]byte, 16<<10)
	}
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM,
		uintptr(l.server), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), syscall.MSG_DONTWAIT, 0, 0)
	switch {
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		r.spare = append(r.spare, b)
		return
	case errno != 0 || n == 0:
		n = 0
		r.close(&l.server)
	}
	r.held = append(r.held, packet{due, l, b[:n]})
}

// deliver writes what is due to the clients.
func (r *relay) deliver() {
	for r.first < len(r.held) && r.held[r.first].due <= time.Since(r.began) {
		p := r.held[r.first]
		r.first++
		if l := p.link; l.client >= 0 {
			l.rest = append(l.rest, p.data...)
			l.ended = len(p.data) == 0
			r.write(l)
		}
		r.spare = append(r.spare, p.data[:cap(p.data)])
	}
	if r.first > len(r.held)/2 {
		r.held, r.first = r.held[:copy(r.held, r.held[r.first:])], 0
	}
}

// write writes the rest to the client, and ends the link after the last of it. If the socket is full, it goes on when the
// client has read; meanwhile others are served, and the rest may grow without a bound.
func (r *relay) write(l *link) {
	for len(l.rest) > 0 {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(l.client),
			uintptr(unsafe.Pointer(&l.rest[0])), uintptr(len(l.rest)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			l.rest = l.rest[:copy(l.rest, l.rest[n:])]
		case syscall.EINTR:
		case syscall.EAGAIN:
			_ = r.watch(syscall.EPOLL_CTL_MOD, l.client, syscall.EPOLLOUT)
			return
		default:
			r.drop(l)
			return
		}
	}
	if l.ended {
		r.drop(l)
	}
}

// drop closes both sides of a link. What is still held for it is lost.
func (r *relay) drop(l *link) {
	r.close(&l.server)
	r.close(&l.client)
	l.rest = nil
}

// close closes a descriptor of a link.
func (r *relay) close(fd *int) {
	if *fd < 0 {
		return
	}
	// Epoll watches a server's socket for as long as the client has a descriptor of it.
	_ = r.watch(syscall.EPOLL_CTL_DEL, *fd, 0)
	_ = syscall.Close(*fd)
	delete(r.links, *fd)
	*fd = -1
}

// watch changes the events for which a descriptor is watched, beside its end.
func (r *relay) watch(op, fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(r.epoll, op, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)}))
}
