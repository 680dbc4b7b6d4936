package core

import (
	"context"
	"sync"
	"time"
)

// settlement is units to give back.
type settlement struct {
	take   Take
	result Result
	units  int64
}

// A remote store is given back to by settleWorkers at a time, from a queue of
// maxSettlements. Beyond that, or while the store is down, settlements are lost: a
// charge expires by itself. Closing a Guard waits closingTime for what is left.
const (
	maxSettlements = 1024
	settleWorkers  = 8
	closingTime    = 500 * time.Millisecond
)

// settler gives units back without anybody waiting for it: at once where the store
// is in the process, else through a bounded queue and a few goroutines, which exist
// only once they are needed.
type settler struct {
	store *failover
	lost  func() // is told of every settlement that is lost
	queue chan settlement
	quit  chan struct{}

	mu      sync.Mutex
	closed  bool
	workers int
	cancels []context.CancelFunc // of what the workers do
	wg      sync.WaitGroup
}

func newSettler(f *failover, lost func()) *settler {
	return &settler{
		store: f,
		lost:  lost,
		queue: make(chan settlement, maxSettlements),
		quit:  make(chan struct{}),
	}
}

func (s *settler) refund(x settlement) {
	ctx := context.Background() //nolint:forbidigo // the request it belongs to is over
	if !s.store.remote() || x.result.charged() != inStore {
		s.settle(ctx, x)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.workers < settleWorkers && (s.workers == 0 || len(s.queue) > 0) {
		s.workers++
		ctx, cancel := context.WithCancel(ctx)
		s.cancels = append(s.cancels, cancel)
		s.wg.Go(func() { s.run(ctx) })
	}
	select {
	case s.queue <- x:
	default:
		s.lost()
	}
}

func (s *settler) run(ctx context.Context) {
	for {
		select {
		case x := <-s.queue:
			s.settle(ctx, x)
		case <-s.quit:
			for ctx.Err() == nil {
				select {
				case x := <-s.queue:
					s.settle(ctx, x)
				default:
					return
				}
			}
			return
		}
	}
}

// settle has no caller to tell: a store that fails logs for itself, and a panic in it,
// such as of a client's hook, would end the program from here.
func (s *settler) settle(ctx context.Context, x settlement) {
	defer func() {
		if recover() != nil {
			s.lost()
		}
	}()
	_ = s.store.refund(ctx, x.take, x.result, x.units)
}

// close settles what waits until ctx ends, and ends the goroutines, which takes as long as
// a store takes to notice that its caller has left.
func (s *settler) close(ctx context.Context) {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
	cancels := s.cancels
	s.mu.Unlock()
	leave := func() {
		for _, cancel := range cancels {
			cancel()
		}
	}
	defer leave()
	stop := context.AfterFunc(ctx, leave)
	s.wg.Wait()
	stop()
	if len(s.queue) > 0 {
		s.lost()
	}
}
