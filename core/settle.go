package core

import (
	"context"
	"sync"
)

// settlement is units to give back.
type settlement struct {
	take   Take
	result Result
	units  int64
}

// maxSettlements is how many settlements may wait for a remote store. Beyond it,
// or while the store is down, they are lost: a charge expires by itself.
const maxSettlements = 1024

// settler gives units back without anybody waiting for it: at once where the
// store is in the process, else through a bounded queue and one goroutine, which
// exists only once it is needed.
type settler struct {
	store *failover
	queue chan settlement
	quit  chan struct{}

	mu      sync.Mutex
	closed  bool
	running bool
	done    chan struct{}
}

func newSettler(f *failover) *settler {
	return &settler{
		store: f,
		queue: make(chan settlement, maxSettlements),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
	}
}

func (s *settler) refund(x settlement) {
	if !s.store.remote() || x.result.Local {
		s.settle(x)
		return
	}
	s.mu.Lock()
	if !s.running && !s.closed {
		s.running = true
		go s.run()
	}
	s.mu.Unlock()
	select {
	case s.queue <- x:
	default:
	}
}

func (s *settler) run() {
	defer close(s.done)
	for {
		select {
		case x := <-s.queue:
			s.settle(x)
		case <-s.quit:
			for {
				select {
				case x := <-s.queue:
					s.settle(x)
				default:
					return
				}
			}
		}
	}
}

// settle has no caller to wait for or to tell: the store has a deadline of its own.
func (s *settler) settle(x settlement) {
	ctx := context.Background() //nolint:forbidigo // the request it belongs to is over
	_ = s.store.refund(ctx, x.take, x.result, x.units)
}

// close settles what waits and ends the goroutine.
func (s *settler) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
	running := s.running
	s.mu.Unlock()
	if running {
		<-s.done
	}
}
