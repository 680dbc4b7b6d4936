package stats

// Location is the place in which a core.Store keeps its counts, for people and tools that look at them from elsewhere. Both
// stores of weir have a method Location() stats.Location, and any further one may: then announcements of a process have it.
type Location struct {
	// Prefix begins the names of the keys in Redis, such as "weir". It is "" in a store that is not in Redis.
	Prefix string
	// Hashed reports that the keys are hashed with a secret: without that, nobody finds the counts of a key.
	Hashed bool
	// Process reports that the counts are in the memory of the process, where no other one can look.
	Process bool
}
