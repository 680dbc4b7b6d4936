package later

import (
	"context"
	"sync"
)

// Group counts the items that its queues have not ended yet.
type Group struct {
	mu    sync.Mutex
	items int
	none  []chan struct{} // closed when there are none
}

func (g *Group) add(n int) {
	g.mu.Lock()
	g.items += n
	g.mu.Unlock()
}

func (g *Group) done(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.items -= n; g.items > 0 {
		return
	}
	for _, c := range g.none {
		close(c)
	}
	g.none = nil
}

// Wait returns when there is nothing left to send in any of the queues, or when ctx ends, with its error.
func (g *Group) Wait(ctx context.Context) error {
	g.mu.Lock()
	if g.items == 0 {
		g.mu.Unlock()
		return ctx.Err()
	}
	none := make(chan struct{})
	g.none = append(g.none, none)
	g.mu.Unlock()
	select {
	case <-none:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
