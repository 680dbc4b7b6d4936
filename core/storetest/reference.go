package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

// ReferenceStore is nothing but [core.Spec.Step] and a map: what any other store is
// compared with. It never forgets a key and is for tests alone.
type ReferenceStore struct {
	mu    sync.Mutex
	texts map[[3]string][]byte // by name, shape and key
}

// Reference returns an empty ReferenceStore.
func Reference() *ReferenceStore { return &ReferenceStore{texts: map[[3]string][]byte{}} }

// Text returns what is stored of a key; nil if nothing is.
func (r *ReferenceStore) Text(p core.Policy, key string) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.texts[place(p, key)]
}

// Take implements [core.Store].
func (r *ReferenceStore) Take(ctx context.Context, t core.Take) (res core.Result, err error) {
	if err := t.Validate(); err != nil {
		return core.Result{}, err
	}
	err = r.update(ctx, &t, func(text []byte) (next []byte, ttl time.Duration) {
		res, next, ttl = t.Policy.Spec().Step(text, t)
		return next, ttl
	})
	return res, err
}

// Refund implements [core.Store].
func (r *ReferenceStore) Refund(ctx context.Context, refunds []core.Refund) error {
	for i := range refunds {
		if err := refunds[i].Validate(); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, x := range refunds {
		t := core.Take{Policy: x.Policy, Key: x.Key, Now: x.Now}
		_ = r.update(context.WithoutCancel(ctx), &t, func(text []byte) ([]byte, time.Duration) {
			x.Now = t.Now
			return x.Policy.Spec().StepRefund(text, x)
		})
	}
	return nil
}

// Reset implements [core.Store].
func (r *ReferenceStore) Reset(ctx context.Context, p core.Policy, key string) error {
	t := core.Take{Policy: p, Key: key}
	if err := t.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.texts, place(p, key))
	return nil
}

func (r *ReferenceStore) update(ctx context.Context, t *core.Take, step func([]byte) ([]byte, time.Duration)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Now == 0 {
		t.Now = time.Now().UnixMicro()
	}
	at := place(t.Policy, t.Key)
	if next, ttl := step(r.texts[at]); ttl > 0 {
		r.texts[at] = next
	}
	return nil
}

func place(p core.Policy, key string) [3]string { return [3]string{p.Name(), p.Spec().Shape(), key} }
