package main

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What is compared does its work: it admits what there is, to each key for itself, however many ask at once.
func TestContendersLimit(t *testing.T) {
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			take := c.build(limit{100, 24 * time.Hour}, 1000)
			keys := names(10)
			admitted := make([]atomic.Int64, len(keys))
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for i := range 1000 {
						if at := i % len(keys); take(keys[at]) {
							admitted[at].Add(1)
						}
					}
				})
			}
			wg.Wait()
			for i := range keys {
				assert.Equal(t, int64(100), admitted[i].Load(), keys[i])
			}
		})
	}
}
