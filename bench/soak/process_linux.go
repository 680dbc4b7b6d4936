package main

import (
	"os"
	"os/exec"
	"syscall"
)

// tie has the kernel kill a process when this one goes away, even if it is stopped then.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func stop(p *os.Process) error   { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// files is how many files the process has open.
func files() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}
