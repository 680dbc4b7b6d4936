package ledger

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// What is owed is owed once, whoever asks, and what is given back is owed no more.
func TestLedger(t *testing.T) {
	var l Ledger
	l.Add(KeyOf("a", "g1s", "k"), 3, time.Minute)
	l.Add(KeyOf("a", "g1s", "k"), 4, time.Minute)
	l.Add(KeyOf("b", "g1s", "k"), 1, time.Minute)
	l.Sub(KeyOf("a", "g1s", "k"), 2)
	l.Sub(KeyOf("a", "g1s", "other"), 2)
	assert.Equal(t, Stats{Keys: 2, Units: 6}, l.Stats())
	assert.Zero(t, l.Collect(KeyOf("a", "g1s", "other")))

	var all sync.WaitGroup
	taken := make([]int64, 8)
	for i := range taken {
		all.Go(func() { taken[i] = l.Collect(KeyOf("a", "g1s", "k")) })
	}
	all.Wait()
	sum := int64(0)
	for _, n := range taken {
		sum += n
	}
	assert.EqualValues(t, 5, sum)
	assert.Equal(t, Stats{Keys: 1, Units: 1}, l.Stats())
	l.Sub(KeyOf("b", "g1s", "k"), 7)
	assert.Zero(t, l.Stats())
	assert.True(t, l.Empty(), "nothing is looked up any more")
}

// Keys that differ in any part owe separately.
func TestKeyOf(t *testing.T) {
	keys := map[Key]bool{}
	for _, k := range [][3]string{{"a", "g1s", "k"}, {"a", "g1s", "l"}, {"a", "g2s", "k"}, {"b", "g1s", "k"}, {"a", "g1", "s:k"}, {"", "", ""}} {
		keys[KeyOf(k[0], k[1], k[2])] = true
	}
	assert.Len(t, keys, 6)
	assert.Equal(t, KeyOf("a", "g1s", "k"), KeyOf("a", "g1s", "k"))
}

// However many keys come during an outage, there is room for so many, and what weighs nothing any more makes room.
func TestLedgerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Ledger
		key := func(i int) Key { return Key{uint64(i) << 8, 1} }
		for i := range 2 * MaxKeys {
			l.Add(key(i), 1, time.Minute)
		}
		assert.Equal(t, Stats{Keys: MaxKeys, Units: MaxKeys, Lost: MaxKeys}, l.Stats())
		assert.Zero(t, l.Collect(key(2*MaxKeys-1)), "those that came late are not handed back")
		l.Add(key(0), 1, time.Minute)
		assert.EqualValues(t, 2, l.Collect(key(0)), "those that are there go on")
		l.Add(key(0), 1, time.Minute)

		advanceTime(time.Minute)
		l.Add(key(2*MaxKeys), 5, time.Hour)
		assert.EqualValues(t, 5, l.Collect(key(2*MaxKeys)))
		for i := 0; l.keys.Load() > 0; i++ { // nobody asks for those keys again, and questions for others let them go
			assert.Zero(t, l.Collect(key(3*MaxKeys+i)))
		}
	})
}

func advanceTime(d time.Duration) { <-time.After(d) }
