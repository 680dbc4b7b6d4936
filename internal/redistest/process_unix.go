//go:build unix && !linux

package redistest

import (
	"net"
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent does nothing: only Linux can tie a process to its parent.
func dieWithParent(*exec.Cmd) {}

func pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// stopListening does nothing: only on Linux does a listener end before it is closed.
func stopListening(net.Listener) {}
