package hosttest

import (
	"os/exec"
	"syscall"
)

// tie has the kernel kill a process when this one goes away, even if it is stopped then.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
