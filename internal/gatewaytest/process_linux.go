package gatewaytest

import (
	"os/exec"
	"syscall"
)

// group gives the process a group, with its workers, and has the kernel end it when the test goes away without cleanups.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// kill kills all of the group.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
