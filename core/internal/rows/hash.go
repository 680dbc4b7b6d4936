package rows

import "hash/maphash"

// hash stands for a policy and a key. It has 126 bits, so that even among a
// billion keys two meet with a chance of one in 10^20. hi is odd, because a row
// that begins with 0 is empty; the last bit of lo is left to the row.
type hash struct{ hi, lo uint64 }

const limitedBit = 1

// seeds make the hash of keys unpredictable, so that nobody can choose keys that crowd
// one place.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// identify stands for a policy's name and shape.
func identify(name, shape string) (id [2]uint64) {
	for i, seed := range seeds {
		id[i] = maphash.String(seed, name+":"+shape)
	}
	return id
}

func (p *Policy) hash(key string) hash {
	return hash{
		(maphash.String(seeds[0], key) ^ p.id[0]) | 1,
		(maphash.String(seeds[1], key) ^ p.id[1]) &^ limitedBit,
	}
}

func (m *Map) shard(h hash) *shard {
	return &m.shards[h.hi>>1&uint64(len(m.shards)-1)]
}
