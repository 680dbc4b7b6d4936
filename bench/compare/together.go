package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// together makes calls at the same time, for one key.
func together(ctx context.Context, d decide, calls int) sample {
	var admitted, failed atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range calls {
		wg.Go(func() {
			<-start
			switch v, err := d(ctx, "all"); {
			case err != nil:
				failed.Add(1)
			case v.admitted:
				admitted.Add(1)
			}
		})
	}
	at := time.Now()
	close(start)
	wg.Wait()
	return sample{Decisions: int64(calls), Admitted: admitted.Load(), Failed: failed.Load(), Elapsed: time.Since(at)}
}
