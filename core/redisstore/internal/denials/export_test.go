package denials

import "time"

// Now is the cache's clock, for what is given to it afterwards.
func (c *Cache) Now() time.Duration {
	if c == nil {
		return 0
	}
	return c.clock()
}
