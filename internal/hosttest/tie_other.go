//go:build !linux

package hosttest

import "os/exec"

func tie(*exec.Cmd) {}
