package schedtest

import (
	"os"
	"strconv"
	"strings"
)

// waited returns the time that each thread of the process has waited for a processor, in nanoseconds; nothing where the
// kernel does not say so.
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
