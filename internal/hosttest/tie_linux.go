package hosttest

import (
	"os/exec"
	"syscall"
)

// Tie has the kernel kill a process, which has not been started yet, when this one goes away, even if it is stopped
// then. On other systems it does nothing.
func Tie(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
