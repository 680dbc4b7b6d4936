//go:build !unix

package redistest

import (
	"errors"
	"os"
	"os/exec"
)

// dieWithParent does nothing: only Linux can tie a process to its parent.
func dieWithParent(*exec.Cmd) {}

func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }
