package hrtimer

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Of <linux/time.h> and <sys/timerfd.h>. golang.org/x/sys/unix has them, and would be one more package in every program.
const (
	clockMonotonic  = 1
	nonblockCloexec = syscall.O_NONBLOCK | syscall.O_CLOEXEC
)

// timer is a timerfd, for which the runtime waits as for a socket: so it is the kernel's timer that wakes the process.
type timer struct {
	fd   uintptr // deadlines of a file need not work any more after File.Fd
	file *os.File
	room [8]byte
}

var (
	idle = make(chan *timer, MaxSleeping) // those that nobody uses
	made atomic.Int32                     // how many there are
)

// newTimer returns nil if there are enough, or the system gives none.
func newTimer() *timer {
	if made.Add(1) <= MaxSleeping {
		fd, _, failed := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, nonblockCloexec, 0)
		if failed == 0 {
			return &timer{fd: fd, file: os.NewFile(fd, "timerfd")}
		}
	}
	made.Add(-1)
	return nil
}

// Sleep waits for d at least, and reports whether it has. It returns false at once if MaxSleeping others sleep, or the
// system gives no timer.
func Sleep(d time.Duration) (slept bool) {
	if d <= 0 { // a timer that is set to this never fires
		return false
	}
	var t *timer
	select {
	case t = <-idle:
	default:
		if t = newTimer(); t == nil {
			return false
		}
	}
	slept = t.wait(d)
	idle <- t
	return slept
}

func (t *timer) wait(d time.Duration) bool {
	once := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(int64(d))}
	_, _, failed := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, t.fd, 0, uintptr(unsafe.Pointer(&once)), 0, 0, 0)
	// A process that is never idle looks at its files every ten milliseconds only, but at Go's timers all the time.
	if failed != 0 || t.file.SetReadDeadline(time.Now().Add(d)) != nil {
		return false
	}
	_, _ = t.file.Read(t.room[:]) // until one of the two ends it
	return true
}
