package main

import (
	"os"
	"syscall"
)

func stop(p *os.Process) error   { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// files counts the files that the process has open.
func files() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}
