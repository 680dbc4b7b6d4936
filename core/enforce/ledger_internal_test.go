package enforce

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core"
)

// What is owed is owed once, whoever asks, and what is given back is owed no more.
func TestLedger(t *testing.T) {
	var l ledger
	a, b := core.MustParse("a: 10/1s"), core.MustParse("b: 10/1s")
	l.add(ledgerKeyOf(a, "k"), 3, time.Minute)
	l.add(ledgerKeyOf(a, "k"), 4, time.Minute)
	l.add(ledgerKeyOf(b, "k"), 1, time.Minute)
	l.sub(ledgerKeyOf(a, "k"), 2)
	l.sub(ledgerKeyOf(a, "other"), 2)
	assert.EqualValues(t, 2, l.keys.Load())
	assert.Zero(t, l.take(ledgerKeyOf(a, "other")))

	var all sync.WaitGroup
	taken := make([]int64, 8)
	for i := range taken {
		all.Go(func() { taken[i] = l.take(ledgerKeyOf(a, "k")) })
	}
	all.Wait()
	sum := int64(0)
	for _, n := range taken {
		sum += n
	}
	assert.EqualValues(t, 5, sum)
	l.sub(ledgerKeyOf(b, "k"), 7)
	assert.Zero(t, l.keys.Load(), "nothing is looked up any more")
}

// However many keys come during an outage, there is room for so many, and what weighs nothing any more makes room.
func TestLedgerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		key := func(i int) ledgerKey { return ledgerKey{uint64(i) << 8, 1} }
		for i := range 2 * keysOwing {
			l.add(key(i), 1, time.Minute)
		}
		assert.EqualValues(t, keysOwing, l.keys.Load())
		assert.Zero(t, l.take(key(2*keysOwing-1)), "those that came late are not handed back")
		l.add(key(0), 1, time.Minute)
		assert.EqualValues(t, 2, l.take(key(0)), "those that are there go on")
		l.add(key(0), 1, time.Minute)

		advanceTime(time.Minute)
		l.add(key(2*keysOwing), 5, time.Hour)
		assert.EqualValues(t, 5, l.take(key(2*keysOwing)))
		for i := 0; l.keys.Load() > 0; i++ { // nobody asks for those keys again, and questions for others let them go
			assert.Zero(t, l.take(key(3*keysOwing+i)))
		}
	})
}

func advanceTime(d time.Duration) { <-time.After(d) }
