package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/internal/ledger"
)

// engine has the store, and does everything around a decision of the store. A [Limiter] and those that its With and
// Variant made share one. Failing over is in failover.go; each of the other jobs is a field with a separate file.
type engine struct {
	store   core.Store
	permits core.PermitStore // the same store, or nil if it keeps no permits
	many    core.ManyStore   // the same store, or nil if it asks for one after the other
	// fallback decides in place of the store while it fails, under "fail local". It is the store itself if that
	// is in the process.
	fallback func() *core.Memory
	memory   *core.Memory  // the store, if it is in the process; nil if it is remote
	source   follow.Source // that the Limiters follow; nil if there is none
	mistakes mistakes      // of Sets, that the log has had

	ledger     ledger.Ledger // what the fallback has admitted and the store has not been charged for
	background *background
	holder     *holder
	waiters    *waiters
	health     *health      // that of all engines of a store, if it has a fallback of its own
	failing    atomic.Bool  // the store has failed
	last       atomic.Int64 // when it last did, in Unix nanoseconds
	log        *slog.Logger // nil means slog.Default(), asked each time
}

// group has what the Limiters of one configuration share: those that New and With made, or those of one WithAll. Its
// Limiters alone keep it alive, and so what is known of policies that are used no more is let go.
type group struct {
	engine *engine

	mu     sync.Mutex
	byName map[string]*named
}

// named has what is known of a name in a group.
type named struct {
	group   *group // by which it is locked
	policy  core.Policy
	numbers         // also others than the policy's, for Reset
	made    [2]made // the latest Variants
}

func newGroup(e *engine) *group { return &group{engine: e, byName: map[string]*named{}} }

func newEngine(s core.Store, log *slog.Logger) *engine {
	e := &engine{store: s, log: log}
	e.permits, _ = s.(core.PermitStore)
	e.many, _ = s.(core.ManyStore)
	var own *core.Memory
	has, ok := s.(interface{ Fallback() *core.Memory })
	if ok {
		own = has.Fallback()
	}
	switch {
	case own == nil: // as if the store had no such method
		e.fallback, e.health = sync.OnceValue(defaultMemory), new(health)
	case core.Store(own) == s:
		e.fallback, e.health, e.memory = has.Fallback, healthOf(own), own
	default:
		e.fallback, e.health = has.Fallback, healthOf(own)
	}
	e.holder = newHolder(e)
	e.background = newBackground(e)
	e.waiters = newWaiters(e)
	return e
}

func defaultMemory() *core.Memory {
	m, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		panic(err) // the defaults are valid
	}
	return m
}

// remote reports whether asking the store takes more than memory.
func (e *engine) remote() bool { return e.memory == nil }

// checkStore reports a store that would panic, or cannot do what p asks for. A nil s stands for a Memory.
func checkStore(s core.Store, p core.Policy) error {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("enforce: Store is a nil %T; was the error of its constructor ignored?", s)
	}
	_, _, permits := p.Concurrent()
	if _, ok := s.(core.PermitStore); s != nil && !ok && permits {
		return fmt.Errorf("enforce: the policy %q has permits, and %T cannot keep them; give a store that implements PermitStore", p, s)
	}
	return nil
}

// register notes that p is enforced, and refuses a policy that cannot be, and another one of its name, with which it would
// share its counts.
func (g *group) register(p core.Policy) (*named, error) {
	switch {
	case p.IsZero():
		return nil, errors.New("enforce: a Limiter without a policy; give one, such as core.MustParse(\"100/1m\")")
	case p.Name() == "":
		return nil, fmt.Errorf("enforce: the policy %q has no name; give it one, as in \"login: %v\"", p, p)
	}
	if err := checkStore(g.engine.store, p); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.byName[p.Name()]
	if n == nil {
		n = &named{group: g, policy: p}
		g.byName[p.Name()] = n
	} else if n.policy.String() != p.String() {
		return nil, fmt.Errorf("enforce: the name %q stands for both %q and %q; they would share one count: rename one", p.Name(), n.policy, p)
	}
	return n, nil
}

// closeTimeout bounds the wait of Close for what is still to be given back.
const closeTimeout = 500 * time.Millisecond

// close ends the waits of all callers, gives back what is held, and waits until the background has sent it.
func (e *engine) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout) //nolint:forbidigo // it serves many requests
	defer cancel()
	e.waiters.close()
	e.holder.close()
	return e.background.flush(ctx)
}

// inMemory is the context of calls in memory, which wait for nothing, and which are also made for requests that are
// over.
var inMemory = context.Background() //nolint:forbidigo // there is nothing to cut short

// origin is the store that has charged units or granted a permit, and to which they go back.
type origin uint8

const (
	unset      origin = iota
	nowhere           // no store: a policy that failed open let the request pass
	inStore           // the store of the Limiter
	inFallback        // the in-process store that decides while the store fails
)

// originOf returns the store that has charged the units of a receipt. The Result of rates and permits together does not
// say it.
func originOf(r *core.Result) origin {
	switch {
	case !r.Local:
		return inStore
	case r.At > 0:
		return inFallback
	default:
		return nowhere
	}
}
