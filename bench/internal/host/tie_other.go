//go:build !linux

package host

import "os/exec"

func tie(*exec.Cmd) {}
