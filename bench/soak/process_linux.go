package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
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

// waited is for how long each thread of the process has waited for a processor, in nanoseconds; nothing where the kernel
// does not say so.
func waited() map[string]int64 {
	all := make(map[string]int64)
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		stat, _ := os.ReadFile("/proc/self/task/" + thread.Name() + "/schedstat")
		if fields := strings.Fields(string(stat)); len(fields) > 1 {
			if ns, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				all[thread.Name()] = ns
			}
		}
	}
	return all
}
