//go:build !unix

package redistest

import (
	"errors"
	"net"
	"os"
	"os/exec"
)

// dieWithParent does nothing: only Linux can tie a process to its parent.
func dieWithParent(*exec.Cmd) {}

func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }

// stopListening does nothing: only on Linux does a listener end before it is closed.
func stopListening(net.Listener) {}
