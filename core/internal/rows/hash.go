package rows

import (
	"crypto/rand"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
)

// hash stands for a policy and a key. A row begins with hi, of which 60 bits are the key's and the last four say that
// it is in use, and nothing else; lo is independent of it, and chooses the shard. In a shard of four thousand keys two
// have one hi with a chance of one in 10^11; among a million keys anywhere, of two in a billion.
type hash struct{ hi, lo uint64 }

// Seeds make the hash of keys unpredictable, so that nobody can choose keys that crowd
// one place. Policies have seeds of their own, so that no key has the hash that stands for
// a policy.
var (
	keySeeds    = [2]seeds{newSeeds(), newSeeds()}
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
	first, second := hashKey(key)
	return hash{
		(first*(p.id[0]|1)+p.id[1])&^flagBits | usedBit,
		second*(p.id[1]|1) + p.id[0],
	}
}

// hashKey returns two independent hashes of a key, in half the time of two calls of maphash: they share the reading
// of the key. Each is the multiplication of wyhash, by which Go's maps hash where the processor has no instruction for
// AES, with another seed each.
func hashKey(key string) (first, second uint64) {
	n := uint64(len(key))
	for ; len(key) > 16; key = key[16:] {
		a, b := word(key), word(key[8:])
		first, second = keySeeds[0].add(first, a, b), keySeeds[1].add(second, a, b)
	}
	a, b := ends(key)
	first, second = keySeeds[0].add(first, a, b), keySeeds[1].add(second, a, b)
	return keySeeds[0].finish(first, n), keySeeds[1].finish(second, n)
}

// ends returns all bytes of at most 16, some of them twice. Texts of one length that differ have different ends.
func ends(s string) (a, b uint64) {
	switch n := len(s); {
	case n >= 8:
		return word(s), word(s[n-8:])
	case n >= 4:
		return half(s), half(s[n-4:])
	case n > 0:
		return uint64(s[0]), uint64(s[n/2])<<8 | uint64(s[n-1])
	default:
		return 0, 0
	}
}

// word returns the first 8 bytes. The compiler makes one instruction of it.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// half returns the first 4 bytes.
func half(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// seeds make one hash of a key unpredictable.
type seeds struct{ a, b, last uint64 }

func newSeeds() seeds {
	var random [24]byte
	_, _ = rand.Read(random[:]) // it never fails
	return seeds{
		binary.LittleEndian.Uint64(random[:]), binary.LittleEndian.Uint64(random[8:]), binary.LittleEndian.Uint64(random[16:]),
	}
}

// add hashes two words more.
func (s *seeds) add(sum, a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^s.a^sum, b^s.b)
	return hi ^ lo
}

// finish adds the length, which tells texts with the same ends apart, and spreads all over all bits.
func (s *seeds) finish(sum, n uint64) uint64 {
	hi, lo := bits.Mul64(sum^s.last, n^s.b)
	return hi ^ lo
}

// shard returns the shard that a key belongs to.
func (m *Map) shard(h hash) int { return int(h.lo >> 32 & uint64(len(m.shards)-1)) }

// ID returns what stands for a key of p wherever its rows are not: the same for as long as the process runs.
func (p *Policy) ID(key string) [2]uint64 {
	h := p.hash(key)
	return [2]uint64{h.hi, h.lo}
}
