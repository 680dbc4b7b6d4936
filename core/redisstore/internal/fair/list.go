package fair

// Each item is in two lists: of its own line, and of every item.
const (
	own = iota
	every
	lists
)

// list is a doubly linked list of items, which have the links to their neighbours.
type list[K comparable, T any] struct {
	first, last *Item[K, T]
	len         int
}

type links[K comparable, T any] struct{ previous, next *Item[K, T] }

// add puts i at the end of the list, by its links of that number.
func (l *list[K, T]) add(i *Item[K, T], which int) {
	if i.links[which] = (links[K, T]{previous: l.last}); l.last == nil {
		l.first = i
	} else {
		l.last.links[which].next = i
	}
	l.last = i
	l.len++
}

// remove takes i out of the list.
func (l *list[K, T]) remove(i *Item[K, T], which int) {
	at := i.links[which]
	if at.previous == nil {
		l.first = at.next
	} else {
		at.previous.links[which].next = at.next
	}
	if at.next == nil {
		l.last = at.previous
	} else {
		at.next.links[which].previous = at.previous
	}
	i.links[which] = links[K, T]{}
	l.len--
}
