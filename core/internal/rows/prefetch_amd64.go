package rows

// prefetch begins to bring the cache line of a word to this processor, and does not wait for it. A load cannot do that:
// the next reading of the clock waits for all loads.
//
//go:noescape
func prefetch(word *int64)
