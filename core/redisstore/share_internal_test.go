package redisstore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
)

// A call has each key once, and no more keys than it may; those who ask for one key are asked for in the order in which
// they came, and those who ask for the same of it one after the other are one.
func TestGroup(t *testing.T) {
	policies := []core.Policy{core.MustParse("a: 3/1s"), core.MustParse("b: 3/1s")}
	script := newScript("")
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int{1, 2, 5, 64}).Draw(t, "keys of a script")
		names := rapid.SampledFrom([]int{1, 3, 20, 400}).Draw(t, "keys")
		all := make([]passenger, rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, flightEntries)).Draw(t, "passengers"))
		f := &flight{entries: len(all)}
		for i := range all {
			p := &all[i]
			f.passengers = append(f.passengers, p)
			p.owner = p
			p.key = fmt.Sprint(rapid.IntRange(1, names).Draw(t, "key"))
			if p.mayShare = rapid.IntRange(0, 9).Draw(t, "shares") > 0; p.mayShare {
				p.script, p.take.Cost = script, rapid.Int64Range(1, 2).Draw(t, "cost")
				p.take.Policy = rapid.SampledFrom(policies).Draw(t, "policy")
			}
		}
		f.group(most)
		came := map[*passenger]int{}
		for i := range all {
			came[&all[i]] = i
		}
		latest := map[string]int{} // of each key, who was asked for last
		asked := func(p *passenger) {
			i, known := came[p]
			require.True(t, known, "asked for twice")
			delete(came, p)
			last, before := latest[p.key]
			require.True(t, !before || last < i, "out of order")
			latest[p.key] = i
		}
		for i := range f.calls {
			c := &f.calls[i]
			if c.shared == nil {
				asked(c.entry.owner)
				continue
			}
			require.LessOrEqual(t, len(c.rows), most)
			require.Len(t, c.counts, len(c.rows))
			keys := map[string]bool{}
			for k := range c.rows {
				p := c.rows[k].first
				require.False(t, keys[p.key], "a key twice")
				keys[p.key] = true
				n := 0
				for ; p != nil; p = p.nextOfKey {
					require.True(t, p.mayShare && p.equal(c.rows[0].first) && p.key == c.rows[k].key)
					asked(p)
					n++
				}
				require.Equal(t, c.counts[k], n)
			}
		}
		require.Empty(t, came)
		before := map[string]*passenger{}
		for i := range all {
			p := &all[i]
			if last := before[p.key]; last != nil && last.alike(p) {
				require.Same(t, p, last.nextOfKey, "not together")
			}
			before[p.key] = p
		}
	})
}
