package redisstore

// Stats are counts of what a [Store] has answered without asking Redis, since it was built. For
// what it asks, see Observe in [Options].
type Stats struct {
	// DenyHits is how many requests were refused from memory, without asking Redis; see
	// Options.DenyCache.
	DenyHits uint64
}

// Stats returns the counts of now, for a gauge or a debug page. It may be called as often as one likes.
func (s *Store) Stats() Stats {
	return Stats{DenyHits: s.denials.Hits()}
}
