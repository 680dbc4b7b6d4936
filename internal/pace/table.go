package pace

import "sync"

// maxKeys is the number of keys of which something is known.
const maxKeys = 10_000

// table has the lines of all keys, at most maxKeys. A line that is used for another key is that of the longest unused
// key for which nobody waits and nothing is under way.
type table struct {
	mu             sync.Mutex
	lines          map[string]*line
	oldest, newest *line
}

// line returns the line of a key, or nil if there is no place for it because all others are in use.
func (t *table) line(key string, p *Pace) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	switch l {
	case nil:
		if len(t.lines) >= maxKeys && !t.forget() {
			return nil
		}
		l = &line{pace: p, key: key}
		t.lines[key] = l
	case t.newest:
		return l
	default:
		t.unlink(l)
	}
	if l.older = t.newest; l.older != nil {
		l.older.newer = l
	} else {
		t.oldest = l
	}
	l.newer, t.newest = nil, l
	return l
}

// forget removes the key that was unused for longest, among the first few: where those are all in use, so are most.
func (t *table) forget() bool {
	l := t.oldest
	for range 32 {
		if l == nil {
			return false
		}
		if l.idle() {
			t.unlink(l)
			delete(t.lines, l.key)
			return true
		}
		l = l.newer
	}
	return false
}

func (t *table) unlink(l *line) {
	if l.older != nil {
		l.older.newer = l.newer
	} else {
		t.oldest = l.newer
	}
	if l.newer != nil {
		l.newer.older = l.older
	} else {
		t.newest = l.older
	}
}
