package rows

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Hashes are seeded, and a key's two words do not follow from each other.
func TestHashesAreSeeded(t *testing.T) {
	seen := map[hash]bool{}
	policies := []*Policy{plainPolicy("a", 1), plainPolicy("b", 1), plainPolicy("a", 2)}
	for i := range 10_000 {
		for _, p := range policies {
			h := p.hash(fmt.Sprint(i))
			seen[h] = true
			if h.hi&1 == 0 || h.lo&limitedBit != 0 {
				t.Fatal("a row that begins with 0 is empty, and the last bit of the second word is taken")
			}
		}
	}
	assert.Len(t, seen, 30_000)
	p := plainPolicy("a", 1)
	h := p.hash("k")
	assert.NotEqual(t, h.hi>>1, h.lo>>1)
	assert.NotEqual(t, seeds[0], seeds[1])
	assert.Equal(t, h, policies[0].hash("k"), "changed numbers keep the state")

	// Keys that another process would find crowded are spread here: an attacker
	// cannot know the seeds.
	m := New(1 << 16)
	shards := map[*shard]int{}
	for i := range 10_000 {
		shards[m.shard(p.hash(fmt.Sprint(i)))]++
	}
	assert.Len(t, shards, len(m.shards))
	for _, n := range shards {
		assert.Less(t, n, 200, "about 39 are to be expected")
	}
}
