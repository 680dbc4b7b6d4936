package rows

import "hash/maphash"

// hash stands for a policy and a key. It has 126 bits, so that even among a
// billion keys two meet with a chance of one in 10^20. hi is odd, because a row
// that begins with 0 is empty; the last bit of lo is left to the row.
type hash struct{ hi, lo uint64 }

const limitedBit = 1

// Seeds make the hash of keys unpredictable, so that nobody can choose keys that crowd
// one place. Policies have seeds of their own, so that no key has the hash that stands for
// a policy.
var (
	keySeeds    = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	policySeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
)

// identify stands for a policy's name and shape. A name has no colon.
func identify(name, shape string) (id [2]uint64) {
	for i, seed := range policySeeds {
		id[i] = maphash.String(seed, name+":"+shape)
	}
	return id
}

// hash maps the two words of the key's own hash one to one, so that nothing of them is
// lost, in a way that each policy has for itself: policy and key do not commute, as they
// would under an exclusive or, where the key "b" of "a" may meet the key "a" of "b".
func (p *Policy) hash(key string) hash {
	return hash{
		(maphash.String(keySeeds[0], key)*(p.id[0]|1) + p.id[1]) | 1,
		(maphash.String(keySeeds[1], key)*(p.id[1]|1) + p.id[0]) &^ limitedBit,
	}
}

func (m *Map) shard(h hash) *shard {
	return &m.shards[h.hi>>1&uint64(len(m.shards)-1)]
}
