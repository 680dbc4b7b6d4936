package counts

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

// View holds the states of some keys of one policy, each as it was at one instant. It is a store that shows just these, for
// an enforce.Limiter that explains what they mean under any numbers, and that cannot change anything.
type View struct {
	stores *Stores
	where  Where
	places chan struct{}

	mu   sync.Mutex
	keys map[string]kept
}

// kept holds the states of one key.
type kept struct {
	at     int64
	states map[[2]string]core.State // by the shapes of the rates and of the permits
}

// View returns a View of the counts of a rule, or an error that says why nobody can look there: of a nil s, that there are
// no places.
func (s *Stores) View(r *Rule) (*View, error) {
	if s == nil {
		return nil, errors.New("this server does not know where the services count; start it with their Redis")
	}
	if r.Barred != "" {
		return nil, errors.New(r.Barred)
	}
	const surely = "~0123456789012345678901234567890123456789012" // which needs no secret
	if _, err := s.open(r.Where, surely); err != nil {
		return nil, err
	}
	places := s.places[nil]
	if !r.Process {
		places = s.places[s.client(cmp.Or(r.Prefix, s.o.Prefix))]
	}
	return &View{stores: s, where: r.Where, places: places, keys: map[string]kept{}}, nil
}

// Read reads what the store keeps about a key under some policies, each state once. It may be called for other keys at the
// same time. A key may also be a hash of one, as services report it that hash their keys: that needs no secret. The error
// is for people, and does not have the key.
func (v *View) Read(ctx context.Context, key string, all ...core.Policy) error {
	from, err := v.stores.open(v.where, key)
	if err != nil {
		return err
	}
	select {
	case v.places <- struct{}{}:
		defer func() { <-v.places }()
	case <-ctx.Done():
		return unreadable(ctx.Err(), key)
	}
	read := kept{states: map[[2]string]core.State{}}
	for _, p := range all {
		if _, known := read.states[shapes(p)]; known {
			continue
		}
		state, err := from.State(ctx, core.Take{Policy: p, Key: key, Now: v.stores.o.Now})
		if err != nil {
			return unreadable(err, key)
		}
		read.at = max(read.at, state.At)
		read.states[shapes(p)] = state
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys[key] = read
	return nil
}

// At returns the instant for which a key was read, by the clock of the store, or a zero time if nothing was.
func (v *View) At(key string) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at := v.keys[key].at; at > 0 {
		return time.UnixMicro(at)
	}
	return time.Time{}
}

// Unused reports whether the store has nothing of a key that was read: its next request is as if it were the first.
func (v *View) Unused(key string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, state := range v.keys[key].states {
		if state.Text != nil || len(state.Leases) > 0 {
			return false
		}
	}
	return len(v.keys[key].states) > 0
}

// shapes name the states that a key of a policy has.
func shapes(p core.Policy) [2]string { return [2]string{p.Spec().Shape(), p.Spec().PermitShape()} }

var (
	errUnread = errors.New("counts: a View was asked for a state that it has not read")
	errChange = errors.New("counts: a View was asked for a change, and shows only what there is")
)

// State implements [core.StateStore] for what was read.
func (v *View) State(_ context.Context, t core.Take) (core.State, error) {
	v.mu.Lock()
	read := v.keys[t.Key]
	v.mu.Unlock()
	state, known := read.states[shapes(t.Policy)]
	if !known {
		return core.State{}, errUnread
	}
	state.At, state.Remembered = read.at, nil // what this process remembers is nobody's answer
	return state, nil
}

// Take implements [core.Store]: it fails.
func (*View) Take(context.Context, core.Take) (core.Result, error) { return core.Result{}, errChange }

// Refund implements [core.Store]: it fails.
func (*View) Refund(context.Context, []core.Refund) error { return errChange }

// Reset implements [core.Store]: it fails.
func (*View) Reset(context.Context, core.Policy, string) error { return errChange }

// Acquire implements [core.PermitStore]: it fails.
func (*View) Acquire(context.Context, core.Permit) (core.Result, error) {
	return core.Result{}, errChange
}

// Renew implements [core.PermitStore]: it fails.
func (*View) Renew(context.Context, []core.Permit) ([]core.Permit, error) { return nil, errChange }

// Release implements [core.PermitStore]: it fails.
func (*View) Release(context.Context, []core.Permit) error { return errChange }
