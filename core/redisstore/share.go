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
	keys   []string
	counts []int
	heads  []*passenger // the first of each key
	tails  []*passenger
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
	where := make(map[string]int, f.entries) // the call that has the key last
	for p := f.first; p != nil; {
		next := p.after
		p.after = nil
		last, known := where[p.key]
		at := -1
		if p.shares {
			at = f.company(p, last, known, keys)
		}
		if at < 0 {
			at = len(f.calls)
			f.calls = append(f.calls, call{entry: &p.entry})
			if p.shares {
				f.calls[at].shared = &shared{}
			}
		}
		if c := &f.calls[at]; p.shares {
			c.add(p, known && at == last)
		}
		where[p.key] = at
		p = next
	}
	f.first = nil
	for i := range f.calls {
		if c := &f.calls[i]; c.shared != nil && len(c.keys) == 1 && c.counts[0] == 1 {
			c.shared = nil // alone after all
		}
	}
}

// company is the call that a passenger can be part of, not before the last one that has its key, or -1.
func (f *flight) company(p *passenger, last int, known bool, keys int) int {
	for i := len(f.calls) - 1; i >= last; i-- {
		c := &f.calls[i]
		if c.shared == nil || !c.heads[0].equal(p) {
			continue
		}
		if known && i == last {
			return i
		}
		if f.crowded = true; len(c.keys) < keys {
			return i
		}
		if keys == 1 && !known {
			break // there is no room in any other
		}
	}
	return -1
}

func (g *shared) add(p *passenger, merge bool) {
	if merge {
		k := len(g.keys) - 1
		for g.keys[k] != p.key {
			k--
		}
		g.counts[k]++
		g.tails[k].after = p
		g.tails[k] = p
		return
	}
	g.keys, g.counts = append(g.keys, p.key), append(g.counts, 1)
	g.heads, g.tails = append(g.heads, p), append(g.tails, p)
}

// arguments appends those of the script takes. Those of the limits have to be complete if others follow.
func (g *shared) arguments(args []any, e *entry) []any {
	args = append(slices.Grow(args, 2+2*len(g.keys)+e.program.params), strconv.Itoa(len(g.keys)))
	for _, key := range g.keys {
		args = append(args, key)
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
