package redisstore

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/weir-go/weir/core"
)

// shared is the part of a call that one script decides for several entries: takes that agree in all but the key.
type shared struct {
	rows   []row // of the keys, in the order in which the script is given them
	counts []int // how many there are of each
}

// row is a list of the passengers of one key, by nextOfKey, in the order in which they came.
type row struct {
	key         string
	first, last *passenger
}

// equal reports whether one script can decide for both.
func (p *passenger) equal(o *passenger) bool {
	return p.script == o.script && p.take.Policy == o.take.Policy && p.take.Cost == o.take.Cost &&
		p.take.Wait == o.take.Wait && p.take.Now == o.take.Now && len(p.args) == len(o.args) &&
		(len(p.args) == 0 || &p.args[0] == &o.args[0] || slices.Equal(p.args, o.args))
}

// alike reports whether a server decides for both at once as if they were one.
func (p *passenger) alike(o *passenger) bool {
	return p.mayShare && o.mayShare && p.key == o.key && p.equal(o)
}

// group makes calls of passengers, as few as it takes: of up to so many keys each. What is asked of one key is asked in
// the order in which it came, but that merged takes go with the first of them.
func (f *flight) group(keys int) {
	f.calls = f.only[:0]
	var known keyTable
	for i, p := range f.passengers {
		p.nextOfKey = nil
		if merged := p.place.Merged(); merged != nil {
			before := merged.Value
			c := &f.calls[before.call]
			if p.call = before.call; c.shared == nil {
				f.share(c, i, keys)
			}
			c.add(p, before)
			continue
		}
		last := -1
		before := known.swap(f.passengers, i)
		if before != nil {
			last = before.call // that has the key last
		}
		p.call = -1
		if p.mayShare {
			p.call = f.company(p, last, keys)
		}
		if p.call < 0 {
			if p.call, p.row = len(f.calls), 0; p.call == 1 && keys == 1 { // and each of the rest may be one, too
				f.calls = slices.Grow(f.calls, len(f.passengers)-i)
			}
			f.calls = append(f.calls, call{entry: &p.entry})
			continue
		}
		c := &f.calls[p.call]
		if c.shared == nil {
			f.share(c, i, keys)
		}
		if p.call != last {
			before = nil
		}
		c.add(p, before)
	}
}

// share makes room in a call for others besides its first passenger. The flight has so many before the next one.
func (f *flight) share(c *call, before, keys int) {
	room := min(2+(len(f.passengers)-before)/len(f.calls), keys)
	c.shared = &shared{make([]row, 0, room), make([]int, 0, room)}
	c.add(c.entry.owner, nil)
}

// keyTable finds the last passenger of each key in a flight, by its number and one.
type keyTable [2 * flightEntries]uint16

var keySeed = maphash.MakeSeed()

// swap returns the passenger that has the same key as number i and came last before it, or nil.
func (t *keyTable) swap(all []*passenger, i int) (before *passenger) {
	key := all[i].key
	for at := maphash.String(keySeed, key) % uint64(len(t)); ; at = (at + 1) % uint64(len(t)) {
		if n := t[at]; n == 0 {
			t[at] = uint16(i + 1) //nolint:gosec // a flight has fewer
			return nil
		} else if before = all[n-1]; before.key == key {
			t[at] = uint16(i + 1) //nolint:gosec // as above
			return before
		}
	}
}

// company returns the call that a passenger can be part of, not before the last one that has its key, or -1.
func (f *flight) company(p *passenger, last, keys int) int {
	fits := func(i int) bool { return f.calls[i].entry.mayShare && f.calls[i].entry.owner.equal(p) }
	if last >= 0 && fits(last) {
		return last
	}
	for i := len(f.calls) - 1; i > last; i-- {
		if !fits(i) {
			continue
		}
		c := &f.calls[i]
		if f.crowded = true; c.shared == nil && keys > 1 || c.shared != nil && len(c.rows) < keys {
			return i
		}
		if keys == 1 && last < 0 {
			break // there is no room in any other
		}
	}
	return -1
}

// add adds a passenger to the row of another one with the same key, or to a new row.
func (g *shared) add(p, same *passenger) {
	if same == nil {
		p.row = len(g.rows)
		g.rows, g.counts = append(g.rows, row{p.key, p, p}), append(g.counts, 1)
		return
	}
	p.row = same.row
	r := &g.rows[p.row]
	g.counts[p.row]++
	r.last.nextOfKey = p
	r.last = p
}

// arguments appends those of the script takes. Those of the limits have to be complete if others follow.
func (g *shared) arguments(args []any, e *entry) []any {
	args = append(slices.Grow(args, 2+2*len(g.rows)+e.program.params), len(g.rows))
	for i := range g.rows {
		args = append(args, &g.rows[i].key) // which takes no memory
	}
	args = append(args, e.args...)
	counts := g.counts
	for len(counts) > 0 && counts[len(counts)-1] == 1 {
		counts = counts[:len(counts)-1]
	}
	if len(counts) == 0 {
		return args
	}
	for n := len(e.args); n < e.program.params+1; n++ {
		args = append(args, "0")
	}
	for _, n := range counts {
		args = append(args, n)
	}
	return args
}

// distribute gives all passengers what was decided for them, and returns calls for those for which nothing was: the
// server refuses what is asked of their key, and they go on by themselves.
func (c *call) distribute(f *flight, reply []int64) (rest []call) {
	take := c.rows[0].first.take
	again, err := take.Policy.Spec().ExplainEach(take, reply, c.counts, func(key, nth int, res *core.Result, said []int64) {
		r := &c.rows[key]
		p := r.first
		r.first = p.nextOfKey
		if res != nil && !res.Allowed() && nth == c.counts[key]-1 { // and so those before it, if they were refused
			f.lane.node.store.noteRefusal(p, reply[0], said, res, f.sent)
		}
		if res == nil {
			rest = append(rest, call{entry: &p.entry})
			return
		}
		p.res, p.decided = *res, true
		f.settle(&p.entry, nil, nil)
	})
	c.each(func(p *passenger) { // none, unless it was in vain
		if again > 0 {
			f.settle(&p.entry, []int64{again}, nil)
		} else {
			f.settle(&p.entry, nil, &core.StoreError{Class: core.ClassReply, MaybeExecuted: true, Err: err})
		}
	})
	return rest
}

// each calls f for every passenger that is not settled.
func (c *call) each(f func(*passenger)) {
	if c.shared == nil {
		if c.entry.owner != nil {
			f(c.entry.owner)
		}
		return
	}
	for i := range c.rows {
		for p := c.rows[i].first; p != nil; {
			next := p.nextOfKey // which is not to be read once p is settled
			f(p)
			p = next
		}
	}
}

// refusesKeys reports whether the server has run nothing because of some of the keys: it has not all of them, or does not
// let the user have them. Then each is to be asked for by itself.
func (n *node) refusesKeys(err error) bool {
	says := serverSays(err)
	if strings.HasPrefix(says, "CROSSSLOT") {
		n.proxy.found()
		return true
	}
	return strings.HasPrefix(says, "NOPERM")
}
