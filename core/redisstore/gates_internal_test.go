package redisstore

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// policiesOf returns that many policies.
func policiesOf(n int) []core.Policy {
	all := make([]core.Policy, n)
	for i := range all {
		all[i] = core.MustParse(fmt.Sprintf("p%d: 10/1m", i))
	}
	return all
}

// A caller does not wait for the lane behind all those of another policy: whatever waits at their gate comes later.
func TestCrowdLeavesTheLaneToOthers(t *testing.T) {
	t.Parallel()
	l := new(lane)
	crowds := policiesOf(1)[0]
	other := policiesOf(2)[1]
	for l.gates.Of(other) == l.gates.Of(crowds) { // by chance
		other = policiesOf(2)[1]
	}
	waits := func(gate *sync.Mutex) {
		for start := time.Now(); gate.TryLock(); runtime.Gosched() {
			gate.Unlock()
			require.Less(t, time.Since(start), time.Minute, "callers do not go through their gate")
		}
	}
	const callers = 1000
	came, place := 0, 0 // locked by the lane
	var wg sync.WaitGroup
	l.mu.Lock()
	for range callers {
		wg.Go(func() {
			gate := l.gates.Of(crowds)
			l.lock(gate)
			defer l.unlock(gate)
			for start := time.Now(); time.Since(start) < 20*time.Microsecond; {
				runtime.Gosched() // or the crowd would run on one processor for 10 ms, and the other caller behind it
			}
			came++
		})
	}
	waits(l.gates.Of(crowds))
	for range 10 * callers { // nearly all of them wait now
		runtime.Gosched()
	}
	wg.Go(func() {
		gate := l.gates.Of(other)
		l.lock(gate)
		defer l.unlock(gate)
		place = came
	})
	waits(l.gates.Of(other))
	for range 10 * callers { // and so does this one, for the lane
		runtime.Gosched()
	}
	l.mu.Unlock()
	wg.Wait()
	assert.Less(t, place, callers/2)
}
