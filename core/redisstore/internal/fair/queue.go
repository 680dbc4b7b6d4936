// Package fair lets callers of many keys share one place, so that a crowd of one key keeps nobody else waiting.
package fair

import (
	"cmp"
	"slices"
)

// Queue holds items that wait, in a line for each key, from which batches are filled in turn. A line exists while
// something waits in it, so there are no more lines than items. The zero value is empty. A Queue needs a lock.
type Queue[K comparable, T any] struct {
	// Marked is an item that the user of the Queue marks. When it leaves the Queue, the one that came after it is
	// marked, if there is one.
	Marked *Item[K, T]

	all    list[K, T] // in the order in which they came
	weight int64
	came   uint64 // how many have come so far

	byKey  map[K]*line[K, T]
	latest *line[K, T] // where the last one was added: nearly always there is only this one
	turn   *line[K, T] // the one that the next batch begins with, or nil
	empty  *line[K, T] // one to use again, or nil

	batch  []*Item[K, T] // room for a batch
	served []*line[K, T] // and for its lines
}

// Item is a place in a Queue. It may be added again when it has left.
type Item[K comparable, T any] struct {
	Value T

	line       *line[K, T] // nil if it is in no Queue
	links      [lists]links[K, T]
	number     uint64 // in the order in which they came
	weight     int64  // 0 if it merges
	fullWeight int64  // its weight if it does not merge
	merges     bool   // with the one before it in its line
	before     *Item[K, T]
}

// line holds the items of one key, in the order in which they came. The lines of a Queue are a ring.
type line[K comparable, T any] struct {
	key            K
	items          list[K, T]
	taken          int64       // the weight of those in the batch that is being filled
	latest         *Item[K, T] // of those
	previous, next *line[K, T]
}

// Len returns how many items wait.
func (q *Queue[K, T]) Len() int { return q.all.len }

// Weight returns the weight of all items that wait.
func (q *Queue[K, T]) Weight() int64 { return q.weight }

// Has reports whether an item of that key waits.
func (q *Queue[K, T]) Has(key K) bool { return q.byKey[key] != nil }

// First returns the item that came first of all that wait, or nil.
func (q *Queue[K, T]) First() *Item[K, T] { return q.all.first }

// Next returns the item that came after i, whatever its key, or nil.
func (i *Item[K, T]) Next() *Item[K, T] { return i.links[every].next }

// Queued reports whether i waits in a Queue.
func (i *Item[K, T]) Queued() bool { return i.line != nil }

// Merged returns the item of the same batch with which i merges, or nil. It does so once, to keep hold of none.
func (i *Item[K, T]) Merged() *Item[K, T] {
	before := i.before
	i.before = nil
	return before
}

// Last returns the item of that key that came last, or nil.
func (q *Queue[K, T]) Last(key K) *Item[K, T] {
	l := q.latest
	if l == nil || l.key != key {
		if l = q.byKey[key]; l == nil {
			return nil
		}
	}
	return l.items.last
}

// Add puts i at the end of the line of its key. If it merges with the one that is last there, it weighs nothing as long
// as both wait.
func (q *Queue[K, T]) Add(i *Item[K, T], key K, weight int64, merges bool) {
	l := q.of(key)
	q.came++
	i.line, i.number, i.before = l, q.came, nil
	i.merges, i.weight, i.fullWeight = merges, weight, weight
	if merges {
		i.weight = 0
	}
	l.items.add(i, own)
	q.all.add(i, every)
	q.weight += i.weight
}

// of returns the line of a key, and makes one if there is none.
func (q *Queue[K, T]) of(key K) *line[K, T] {
	if q.latest != nil && q.latest.key == key {
		return q.latest
	}
	l := q.byKey[key]
	if l == nil {
		if l, q.empty = q.empty, nil; l == nil {
			l = new(line[K, T])
		}
		l.key = key
		if q.byKey == nil {
			q.byKey = make(map[K]*line[K, T])
		}
		q.byKey[key] = l
		if q.turn == nil {
			l.previous, l.next, q.turn = l, l, l
		} else { // its turn comes after that of all others
			l.previous, l.next = q.turn.previous, q.turn
			l.previous.next, l.next.previous = l, l
		}
	}
	q.latest = l
	return l
}

// Remove takes i out of the Queue.
func (q *Queue[K, T]) Remove(i *Item[K, T]) {
	l, next := i.line, i.links[own].next
	if next != nil && next.merges && !i.merges { // with i, and those after it with next from now on
		q.part(next)
	}
	q.unlink(i)
	q.close(l)
}

// part lets i, which comes first of its line from now on, merge with none.
func (q *Queue[K, T]) part(i *Item[K, T]) {
	i.merges, i.weight = false, i.fullWeight
	q.weight += i.weight
}

func (q *Queue[K, T]) unlink(i *Item[K, T]) {
	if q.Marked == i {
		q.Marked = i.Next()
	}
	i.line.items.remove(i, own)
	q.all.remove(i, every)
	i.line = nil
	q.weight -= i.weight
}

// close gives a line back in which nothing waits.
func (q *Queue[K, T]) close(l *line[K, T]) {
	if l.items.len > 0 {
		return
	}
	delete(q.byKey, l.key)
	if q.latest == l {
		q.latest = nil
	}
	if q.turn == l {
		if q.turn = l.next; q.turn == l {
			q.turn = nil
		}
	}
	l.previous.next, l.next.previous = l.next, l.previous
	*l = line[K, T]{}
	q.empty = l
}

// Fill takes a batch of items out of the Queue and returns them in the order in which they came: at most so many, and
// together at most as heavy, or a single one that is heavier. The lines take turns of that weight, and where one batch
// ends the next one begins: with n lines, each has an n-th of every batch, or all that waits in it if that is less. The
// others share the rest.
func (q *Queue[K, T]) Fill(most int, heaviest, turn int64) []T {
	if q.turn == nil {
		return nil
	}
	batch := q.batch[:0]
	weight := int64(0)
	fits := func(i *Item[K, T]) bool {
		return i != nil && len(batch) < most && (len(batch) == 0 || weight+i.weight <= heaviest)
	}
	take := func(l *line[K, T]) {
		i := l.items.first
		if i.merges { // and so the one before it is in this batch
			i.before = l.latest
		}
		l.latest = i
		l.taken += i.weight
		weight += i.weight
		q.unlink(i)
		batch = append(batch, i)
	}
	served := q.served[:0]
	for start := q.turn; fits(q.turn.items.first); { // a turn for each, until the batch is full
		l := q.turn
		take(l)
		served = append(served, l)
		if q.turn = l.next; q.turn == start {
			break
		}
	}
	for part, left := 2*turn, true; left; part += turn { // then what is left, for those that have had one
		left = false
		for _, l := range served {
			if !fits(l.items.first) {
				continue
			}
			if left = true; l.taken < part || len(served) == 1 {
				take(l)
			}
		}
	}
	for _, l := range served {
		l.taken, l.latest = 0, nil
		if first := l.items.first; first != nil && first.merges { // with one that it does not travel with
			q.part(first)
		}
		q.close(l)
	}
	if len(served) > 1 {
		slices.SortFunc(batch, func(a, b *Item[K, T]) int { return cmp.Compare(a.number, b.number) })
	}
	values := make([]T, len(batch))
	for k, i := range batch {
		values[k] = i.Value
	}
	clear(served)
	clear(batch)
	q.served, q.batch = served[:0], batch[:0]
	return values
}

// Displace takes out the newest item of the longest line, for one of that key to have its place, and returns it. It
// returns nil if that one would be the newest of the longest line itself.
func (q *Queue[K, T]) Displace(key K) *Item[K, T] {
	if q.turn == nil {
		return nil
	}
	mine := 0
	if l := q.byKey[key]; l != nil {
		mine = l.items.len
	}
	longest := q.turn
	for l := q.turn.next; l != q.turn && 2*longest.items.len < q.all.len; l = l.next {
		if l.items.len > longest.items.len {
			longest = l
		}
	}
	if longest.items.len <= mine+1 {
		return nil
	}
	i := longest.items.last
	q.Remove(i)
	return i
}
