package rows

// evict removes at least one key: what is dead, or else the best of all tables.
func (s *shard) evict(now int64) {
	var best victim
	dead := 0
	for t := range s.tables() {
		removed, v := t.evict(now)
		if dead += removed; v.table != nil && v.better(best) {
			best = v
		}
	}
	if dead == 0 && best.table != nil {
		best.table.lock(best.row)
		best.table.remove(best.row)
		dead = 1
		if s.displaced++; best.limited {
			s.atLimit++
		}
	}
	s.keys -= dead
}

// evictionWindow is the number of rows of a table that eviction looks at before it decides.
const evictionWindow = 32

// victim is a row that may be evicted.
type victim struct {
	table   *table
	row     int
	expires int64
	limited bool
}

// better reports whether v is to be evicted rather than w: not one that is being
// limited, and the one that is closest to unused.
func (v victim) better(w victim) bool {
	switch {
	case w.table == nil:
		return true
	case v.limited != w.limited:
		return !v.limited
	default:
		return v.expires < w.expires
	}
}

// evict removes what is dead within the next window of rows, and returns how many that
// were, or else which row of the window is the best to remove.
func (t *table) evict(now int64) (removed int, best victim) {
	a := t.array.Load()
	for seen := 0; seen < evictionWindow && seen < t.live; {
		t.hand %= a.size
		if a.empty(t.hand) {
			t.hand++
			continue
		}
		head := t.lock(t.hand)
		v := victim{t, t.hand, t.expires(t.hand), a.limited(t.hand)}
		if v.expires <= now {
			t.remove(t.hand) // which may bring another row here, and move the best
			removed++
			continue
		}
		t.unlock(t.hand, head)
		if v.better(best) {
			best = v
		}
		t.hand++
		seen++
	}
	return removed, best
}
