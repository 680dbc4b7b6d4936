package redisstore

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/core"
)

// shared is what one script decides for several: takes that agree in all but the key. Those of one
// key follow each other in the chain of their passengers, as they do in the order in which they came.
type shared struct {
	heads  []*passenger // the first of each key
	counts []int        // of how many
}

// equal reports whether one script can decide for both.
func (p *passenger) equal(o *passenger) bool {
	return p.script == o.script && p.take.Policy == o.take.Policy && p.take.Cost == o.take.Cost &&
		p.take.Wait == o.take.Wait && p.take.Now == o.take.Now && len(p.args) == len(o.args) &&
		(len(p.args) == 0 || &p.args[0] == &o.args[0] || slices.Equal(p.args, o.args))
}

// alike reports whether a server decides for both at once as if they were one.
func (p *passenger) alike(o *passenger) bool {
	return p.shares && o.shares && p.key == o.key && p.equal(o)
}

// group makes calls of passengers, as few as it takes: of up to so many keys each. What is asked of
// one key is asked in the order in which it came.
func (f *flight) group(keys int) {
	if f.first == nil {
		return
	}
	all, done := newPlaces(f.entries)
	defer done()
	if keys == 1 { // each key has a call of its own
		f.calls = make([]call, 0, min(f.entries, 16))
	}
	var before *passenger
	var same *place // of the key that the one before has
	for left := f.entries; f.first != nil; left-- {
		p := f.first
		f.first, p.after = p.after, nil
		if before == nil || p.key != before.key {
			same = all.of(p)
		}
		before = p
		if !p.shares {
			same.call, same.tail = len(f.calls), nil
			f.calls = append(f.calls, call{entry: &p.entry})
			continue
		}
		at, room := f.company(p, same, keys), min(keys, 1+left)
		if at > 0 { // there are several policies, or costs
			room = min(room, 8)
		}
		switch {
		case at < 0:
			at = len(f.calls)
			f.calls = append(f.calls, call{entry: &p.entry, first: p})
			same.nth = 0
		case at == same.call: // it has the key
			f.calls[at].share(room)
			f.calls[at].counts[same.nth]++
			same.tail.after, same.tail = p, p
			continue
		default:
			f.calls[at].share(room)
			same.nth = f.calls[at].add(p)
		}
		same.call, same.tail = at, p
	}
}

// share makes a call of one passenger one that others may join, with room for so many keys.
func (c *call) share(room int) {
	if c.shared != nil {
		return
	}
	c.shared = &shared{make([]*passenger, 0, room), make([]int, 0, room)}
	c.add(c.first)
}

// add adds another key, and returns which one it is.
func (g *shared) add(p *passenger) (nth int) {
	g.heads, g.counts = append(g.heads, p), append(g.counts, 1)
	return len(g.heads) - 1
}

// company is the call that a passenger can be part of, not before the latest that has its key, or -1.
func (f *flight) company(p *passenger, same *place, keys int) int {
	fits := func(i int) bool { return f.calls[i].first != nil && f.calls[i].first.equal(p) }
	known := same.call >= 0
	if known && fits(same.call) {
		return same.call
	}
	for i := len(f.calls) - 1; i > same.call; i-- {
		if !fits(i) {
			continue
		}
		if f.crowded = true; keys > 1 && (f.calls[i].shared == nil || len(f.calls[i].heads) < keys) {
			return i
		}
		if keys == 1 && !known {
			break // there is no room in any other
		}
	}
	return -1
}

// arguments appends those of the script takes to what the command begins with. Those of the limits have to be complete if
// others follow.
func (g *shared) arguments(room []any, e *entry, begin ...any) []any {
	counts := g.counts
	for len(counts) > 0 && counts[len(counts)-1] == 1 {
		counts = counts[:len(counts)-1]
	}
	args := append(slices.Grow(room, len(begin)+1+len(g.heads)+e.program.params+1+len(counts)), begin...)
	args = append(args, strconv.Itoa(len(g.heads)))
	for _, p := range g.heads {
		args = append(args, p.key)
	}
	args = append(args, e.args...)
	if len(counts) == 0 {
		return args
	}
	for n := len(e.args); n < e.program.params+1; n++ {
		args = append(args, "0")
	}
	for _, n := range counts {
		args = append(args, strconv.Itoa(n))
	}
	return args
}

// arrive gives all passengers what was decided for them. Those for whom nothing was, because the
// server refuses what is asked of their key, go on by themselves.
func (c *call) arrive(f *flight, reply []int64) (rest []call) {
	p := (*passenger)(nil)
	left := slices.Clone(c.heads) // the next one of each key
	again, err := c.heads[0].take.Policy.Spec().ExplainEach(c.heads[0].take, reply, c.counts, func(key, nth int, res *core.Result, said []int64) {
		p = left[key]
		left[key] = p.after
		if res != nil && !res.Allowed() && nth == c.counts[key]-1 { // and so those before it, if they were refused
			f.lane.node.store.refused(p, reply[0], said, res, f.sent)
		}
		if res == nil {
			rest = append(rest, call{entry: &p.entry})
			return
		}
		p.res, p.decided = *res, true
		p.settle(nil, nil)
	})
	for _, p := range left { // none, unless it was in vain
		for p != nil {
			next := p.after
			if again > 0 {
				p.settle([]int64{again}, nil)
			} else {
				p.settle(nil, &core.StoreError{Class: core.ClassReply, Executed: true, Err: err})
			}
			p = next
		}
	}
	return rest
}

// each calls f for every passenger.
func (g *shared) each(f func(*passenger)) {
	for _, p := range g.heads {
		for p != nil {
			next := p.after // which is not to be read once p has arrived
			f(p)
			p = next
		}
	}
}

// parts reports whether the server has run nothing because of some of the keys: it has not all
// of them, or does not let the user have them. Then each is to be asked for by itself.
func (n *node) parts(err error) bool {
	says := serverSays(err)
	if strings.HasPrefix(says, "CROSSSLOT") {
		n.apart()
		return true
	}
	return strings.HasPrefix(says, "NOPERM")
}
