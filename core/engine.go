package core

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// engine is what a [Limiter] shares with all that its With made: the store, and all that is done around a decision of
// the store. Failing over is in failover.go, and each of the other jobs is a field here, in a file of its own.
type engine struct {
	store   Store
	permits PermitStore // the same store, or nil if it keeps no permits
	// fallback decides in place of the store while it fails, under "fail local". It is the store itself if that
	// is in the process.
	fallback func() *Memory
	memory   *Memory // the store, if it is in the process; nil if it is remote
	mirrors  bool    // the fallback counts what the store admits, too

	ledger     ledger // what the fallback has admitted and the store has not been charged for
	background *background
	holder     *holder
	waiters    *waiters
	health     *health      // that of all engines of a store, if it has a fallback of its own
	failing    atomic.Bool  // the store has failed
	last       atomic.Int64 // when it last did, in Unix nanoseconds
	log        *slog.Logger // nil means slog.Default(), asked each time

	mu    sync.Mutex
	names map[string]Policy
	known map[string][]Policy // by the same names, also for other numbers; see know
}

func newEngine(s Store, log *slog.Logger) *engine {
	e := &engine{store: s, log: log, names: map[string]Policy{}, known: map[string][]Policy{}}
	e.permits, _ = s.(PermitStore)
	var own *Memory
	has, ok := s.(interface{ Fallback() *Memory })
	if ok {
		own = has.Fallback()
	}
	switch {
	case own == nil: // as if the store had no such method
		e.fallback, e.health = sync.OnceValue(defaultMemory), new(health)
	case Store(own) == s:
		e.fallback, e.health, e.memory = has.Fallback, &own.health, own
	default:
		e.fallback, e.health = has.Fallback, &own.health
	}
	if own, ok := s.(interface{ Mirrors() bool }); ok {
		e.mirrors = own.Mirrors() && e.remote()
	}
	e.background = newBackground(e)
	e.holder = newHolder(e)
	e.waiters = newWaiters(e)
	return e
}

// remote reports whether asking the store takes more than memory.
func (e *engine) remote() bool { return e.memory == nil }

// checkStore reports a store that would panic, or cannot do what p asks for. A nil s stands for a Memory.
func checkStore(s Store, p Policy) error {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("core: Store is a nil %T; was the error of its constructor ignored?", s)
	}
	if _, ok := s.(PermitStore); s != nil && !ok && p.p != nil && p.p.permits != nil {
		return fmt.Errorf("core: the policy %q has permits, and %T cannot keep them; give a store that implements PermitStore", p, s)
	}
	return nil
}

// register notes that p is enforced, and refuses another policy of its name, with which it would share its counts.
func (e *engine) register(p Policy) error {
	if err := checkStore(e.store, p); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if other, ok := e.names[p.Name()]; ok && other.String() != p.String() {
		return fmt.Errorf("core: the name %q stands for both %q and %q; they would share one count: rename one", p.Name(), other, p)
	}
	e.names[p.Name()] = p
	return nil
}

// closeTimeout is how long Close waits for what is still to be given back.
const closeTimeout = 500 * time.Millisecond

// close ends the waits of all callers, gives back what is held, and waits until the background has sent it.
func (e *engine) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout) //nolint:forbidigo // it is of many requests
	defer cancel()
	e.waiters.close()
	e.holder.close()
	return e.background.flush(ctx)
}
