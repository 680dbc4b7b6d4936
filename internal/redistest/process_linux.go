package redistest

import (
	"net"
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process when the test binary goes away without running its
// cleanups, as after a panic or a timeout.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// stopListening refuses connections from now on. Closing the socket alone would do so later if a process is being
// started just now: until its program runs, it has the socket too.
func stopListening(l net.Listener) {
	conn, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
}
