package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

// Reference returns a store that is nothing but [core.Policy.Step] and a map: what
// any other store is compared with. It never forgets a key and is for tests alone.
func Reference() core.Store { return &reference{texts: map[[3]string][]byte{}} }

type reference struct {
	mu    sync.Mutex
	texts map[[3]string][]byte // by name, shape and key
}

func (r *reference) Take(ctx context.Context, t core.Take) (res core.Result, err error) {
	if err := t.Validate(); err != nil {
		return core.Result{}, err
	}
	err = r.update(ctx, &t, func(text []byte) (next []byte, ttl time.Duration) {
		res, next, ttl = t.Policy.Step(text, t)
		return next, ttl
	})
	return res, err
}

func (r *reference) Refund(ctx context.Context, t core.Take, res core.Result, units int64) error {
	if err := core.ValidateRefund(&t, res, units); err != nil {
		return err
	}
	return r.update(ctx, &t, func(text []byte) ([]byte, time.Duration) {
		return t.Policy.StepRefund(text, t, res, units)
	})
}

func (r *reference) Reset(ctx context.Context, p core.Policy, key string) error {
	t := core.Take{Policy: p, Key: key}
	if err := t.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.texts, place(&t))
	return nil
}

func (r *reference) update(ctx context.Context, t *core.Take, step func([]byte) ([]byte, time.Duration)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Now == 0 {
		t.Now = time.Now().UnixMicro()
	}
	if next, ttl := step(r.texts[place(t)]); ttl > 0 {
		r.texts[place(t)] = next
	}
	return nil
}

func place(t *core.Take) [3]string { return [3]string{t.Policy.Name(), t.Policy.Shape(), t.Key} }
