package redistest

import (
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
