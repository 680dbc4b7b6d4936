package stats

// Location is the place in which a core.Store keeps its counts, for people and tools that look at them from elsewhere.
// The announcements of a process have it, of a core.Memory and of a store with a method Location() stats.Location, such as
// redisstore.Store.
type Location struct {
	// Prefix begins the names of the keys in Redis, such as "weir". It is "" in a store that is not in Redis.
	Prefix string
	// Hashed reports that the keys are hashed with a secret: without that, nobody finds the counts of a key.
	Hashed bool
	// Process reports that the counts are in the memory of the process, where no other one can look.
	Process bool
}
