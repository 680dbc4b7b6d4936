package rows

import (
	"time"
	"weak"
)

// sweepEvery is the longest time that dead rows may linger.
const sweepEvery = 10 * time.Second

// sweepLater sees to it that there is a timer.
func (m *Map) sweepLater() {
	if !m.sweeping.Load() && m.sweeping.CompareAndSwap(false, true) {
		m.scheduleSweep()
	}
}

// scheduleSweep sets a timer that does not keep the Map alive: it needs no Close, and
// one that nobody uses any more is collected with all it holds.
func (m *Map) scheduleSweep() {
	w := weak.Make(m)
	time.AfterFunc(sweepEvery, func() {
		if m := w.Value(); m != nil {
			m.sweep()
		}
	})
}

// sweep removes dead rows, a shard at a time, and gives their memory back. It
// goes on for as long as there are rows.
func (m *Map) sweep() {
	m.clock.adjust()
	now, left := m.clock.now(), 0
	for i := range m.shards {
		left += m.shards[i].sweep(now)
	}
	if left > 0 {
		m.scheduleSweep()
		return
	}
	m.sweeping.Store(false)
	if m.Len() > 0 { // one came in between
		m.sweepLater()
	}
}
