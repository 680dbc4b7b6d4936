//go:build unix

package main

import (
	"os"
	"strconv"
	"syscall"
)

// stepAside gives all threads of this process the lowest priority: what it does would be done on other machines, and is
// not to take the processor from Redis and from who decides. Where there is no /proc it does nothing.
func stepAside() {
	threads, _ := os.ReadDir("/proc/self/task") // none elsewhere
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, 19) // it is only polite
		}
	}
}
