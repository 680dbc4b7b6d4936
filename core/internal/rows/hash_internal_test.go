package rows

import (
	"bytes"
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
			if h.hi&(usedBit|flagBits) != usedBit {
				t.Fatal("a row that begins with 0 is empty, and the other bits are taken")
			}
		}
	}
	assert.Len(t, seen, 30_000)
	p := plainPolicy("a", 1)
	h := p.hash("k")
	assert.NotEqual(t, h.hi>>4, h.lo>>4)
	assert.Equal(t, h, policies[0].hash("k"), "changed numbers keep the state")

	// Keys that another process would find crowded are spread here: an attacker
	// cannot know the seeds.
	m := New(1 << 16)
	shards := map[int]int{}
	for i := range 10_000 {
		shards[m.shard(p.hash(fmt.Sprint(i)))]++
	}
	assert.Len(t, shards, len(m.shards))
	for _, n := range shards {
		assert.Less(t, n, 200, "about 39 are to be expected")
	}
}

// Keys of all lengths differ, also those whose first and last bytes are the same, and that differ in one bit.
func TestHashesOfKeysDiffer(t *testing.T) {
	p := plainPolicy("a", 1)
	seen := map[hash]string{}
	add := func(key string) {
		h := p.hash(key)
		if other, ok := seen[h]; ok && other != key {
			t.Fatalf("%q and %q have one hash", key, other)
		}
		seen[h] = key
	}
	for n := range 70 {
		for _, fill := range []byte{0, 1, 'a', 0xff} {
			key := bytes.Repeat([]byte{fill}, n)
			add(string(key))
			for bit := range 8 * n {
				key[bit/8] ^= 1 << (bit % 8)
				add(string(key))
				key[bit/8] ^= 1 << (bit % 8)
			}
		}
	}
	assert.Greater(t, len(seen), 4*70*69*8/2-1000)
	low, high := map[uint64]bool{}, map[uint64]bool{}
	for h := range seen { // no half of a word is a constant
		low[h.lo&0xffff_fffe] = true
		high[h.hi>>33] = true
	}
	assert.Greater(t, len(low), len(seen)*99/100)
	assert.Greater(t, len(high), len(seen)*99/100)
}

// No two pairs of a policy and a key have the same hash, whatever names, shapes and keys are made of: also where a key
// is equal to the name or the shape of another policy.
func TestHashesOfPairsDiffer(t *testing.T) {
	texts := []string{"", "a", "b", "g", "gg", "a:g", "b:g", "a:gg", "b:gg", ":g", ":", "a:", "a:g:b", "g:a", "ga", "ag", "\x00", "a\x00g"}
	seen := map[hash]string{}
	for _, name := range []string{"", "a", "b", "g", "gg", "ga", "ag"} {
		for _, shape := range []string{"g", "gg", "t", "f", "g:a"} {
			p := NewPolicy(name, shape, shape, nil)
			for _, key := range texts {
				h, pair := p.hash(key), fmt.Sprintf("%q of shape %q, key %q", name, shape, key)
				assert.Empty(t, seen[h], pair)
				seen[h] = pair
			}
		}
	}
}
