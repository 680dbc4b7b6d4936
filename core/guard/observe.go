package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// Event is one decision, as Config.Observe is told of it.
type Event struct {
	// Policy is the policy's name.
	Policy string
	// Outcome is what was decided: by the policy's fail word, if Err is a *core.StoreError.
	Outcome core.Outcome
	// Err is what went wrong on the way, or nil: a *core.StoreError, the error of the key function (also where
	// NoKeyShared made the store decide all the same), the context's error of a client that left, or
	// core.ErrClosed.
	Err error
}

func (g *Guard) tell(o core.Outcome, err error) {
	if g.observe != nil {
		g.observe(Event{Policy: g.rule.name, Outcome: o, Err: err})
	}
}

// admitted reports a request that passes. Until then nobody else knows what v owes.
func (g *Guard) admitted(v *Verdict, unnamed error) {
	if g.observe == nil {
		return
	}
	told := false
	defer func() {
		if !told && v.owed != nil {
			v.owed.admission.Release()
		}
	}()
	g.tell(v.Result.Outcome, cmp.Or(v.Err, unnamed))
	told = true
}

func (f *family) logger() *slog.Logger {
	if f.log != nil {
		return f.log
	}
	return slog.Default()
}

// mistake says, once for each rule, that its key or cost function does not work.
func (g *Guard) mistake(err error) {
	_, failed := errors.AsType[*core.StoreError](err)
	_, broken := errors.AsType[keyError](err)
	switch {
	case failed, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return
	case errors.Is(err, keyfunc.ErrNoKey) && !broken:
		return
	}
	g.rule.mistaken.Do(func() {
		g.logger().Error("weir: a rule's key or cost cannot be used", "policy", g.rule.name, "key", g.rule.Key.String(), "error", err)
	})
}

// doubt says, once for all rules, that keys are made of addresses that may not be the clients'.
func (g *Guard) doubt(warning string) {
	g.doubtful.Do(func() { g.logger().Warn("weir: "+warning, "policy", g.rule.name) })
}

// misplaced says, once for each rule, that its handler was made for another framework.
func (g *Guard) misplaced(x Exchange, v *Verdict) {
	g.rule.misplaced.Do(func() {
		adapter, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", x), "*"), ".")
		g.logger().Error("weir: an over-limit handler is of another framework; a plain answer is sent",
			"framework", adapter, "policy", v.Policy, "handler", g.rule.OverLimit.String())
	})
}
