package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/keyfunc"
)

// Warning is something that works, but may not be what was meant. [Guard.Lint] returns those that show at start-up;
// those that show only in use are written to the log, once each, with their code.
type Warning struct {
	// Code names the kind of the warning, such as "unmatched-entry". docs/warnings.md explains each.
	Code string
	// Where is the place in the Config, such as `Routes["POST /login"]`, or "" for the whole of it.
	Where string
	// Text is a sentence: what is doubtful, and what to do.
	Text string
}

// String returns the Warning as a line for a log.
func (w Warning) String() string {
	if w.Where == "" {
		return w.Code + ": " + w.Text
	}
	return w.Code + ": " + w.Where + ": " + w.Text
}

// The codes of the warnings of Lint.
const (
	codeUnmatched     = "unmatched-entry"
	codeNoRoutes      = "no-routes"
	codeRawPath       = "raw-path"
	codeAddressHeader = "address-header"
	codeKeyBehind     = "key-behind"
	codeCostUnused    = "cost-unused"
	codeTwice         = "rule-twice"
	codeSameKey       = "same-key"
	codeShortWait     = "wait-too-short"
	codeWaiting       = "waiting-unused"
	codePermitsWait   = "permits-do-not-wait"
	codeTiersApart    = "tiers-apart"
	codeEarlier       = "earlier-route"
	codeMethods       = "other-methods"
	codeWideFirst     = "wide-first"
	codeHeldPermits   = "permits-held"
	codeNotNarrow     = "nothing-narrow"
	codeNumbers       = "unusable-numbers" // also in use
	codeBlockedTrial  = "blocked-on-trial"
	codeUnmatchedKey  = "unmatched-key"
	codeUnnamed       = "unnamed-policy" // also in the log, when the Guard is built
)

// textUnnamed explains codeUnnamed.
const textUnnamed = "the policy has no name: on a Store that was given it is called \"default\", and shares counts with " +
	"every other policy of that name; give it one, as in \"api: 100/1m\""

// The codes of the warnings in the log.
const (
	codeNoRoute    = "no-route"
	codeNoKey      = "no-key"
	codeProxy      = "behind-proxy"
	codeCost       = "cost-too-large"
	codeUncharged  = "nothing-charged"
	codeUnreported = "nothing-reported"
	codeStatus     = "error-without-status"
	codeUnasked    = "degraded-unasked"
	codeDetach     = "permit-not-kept"
	codeKey        = "unusable-key"
	codeCostBelow  = "unusable-cost"
	codeAddress    = "rewritten-address"
	codeTier       = "unknown-tier"
	codeStore      = "store-error"
	codeForeign    = "foreign-handler"
	codeMounted    = "mounted-twice"
	codeOverlooked = "overlooked-entry"
)

// maxLogged bounds, in bytes, what is logged of a text that may come from a client or a Source.
const maxLogged = 256

// logged is text as it is logged: cut, if it is long.
func logged(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	return strings.ToValidUTF8(text[:maxLogged], "") + fmt.Sprintf("... (%d bytes)", len(text))
}

// warnCost logs, once for each rule, that a cost is larger than its policy ever admits.
func (g *Guard) warnCost(ru *rule, res *core.Result) {
	ru.warned.cost.Do(func() {
		g.logger().Warn("weir: a request costs more than its policy ever admits; give the limit a larger burst, or a debt",
			"policy", ru.name, "limit", res.Limit, "code", codeCost)
	})
}

// warnCostBelow logs, once for each rule, that its Cost has returned less than 0.
func (g *Guard) warnCostBelow(ru *rule, cost int64) {
	ru.warned.below.Do(func() {
		g.logger().Error("weir: a rule's Cost has returned less than 0, so that the request gets 503; let it return 0 or more, also where a ContentLength is -1",
			"policy", ru.name, "cost", cost, "code", codeCostBelow)
	})
}

// warnKey logs, once for each rule, that its key function does not work.
func (g *Guard) warnKey(ru *rule, err error) {
	if failedOtherwise(err) || errors.Is(err, keyfunc.ErrNoKey) && !errors.As(err, &keyError{}) {
		return
	}
	ru.warned.key.Do(func() {
		g.logger().Error("weir: a rule's key cannot be used", "policy", ru.name, "key", logged(ru.Key.String()), "error", logged(err.Error()), "code", codeKey)
	})
}

// failedOtherwise reports whether an error says by itself what has happened: the caller left, the store failed, or the
// Guard is closed.
func failedOtherwise(err error) bool {
	failed := (*core.StoreError)(nil)
	return errors.As(err, &failed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, enforce.ErrClosed)
}

// warnAddress logs, once for all rules, that keys are made of addresses that may not be the clients'.
func (g *Guard) warnAddress(ru *rule, warning string) {
	g.rewritten.Do(func() { g.logger().Warn("weir: "+warning, "policy", ru.name, "code", codeAddress) })
}

// warnTier logs, once for each rule, that it has no policy for a tier, but for one that is nearly called the same.
func (g *Guard) warnTier(ru *rule, tier, known string) {
	ru.warned.tier.Do(func() {
		g.logger().Warn("weir: Tier has named a tier that differs from one in Tiers by case or white space alone, so that the rule's own policy holds; let both spell it alike",
			"policy", ru.name, "tier", logged(tier), "known", known, "code", codeTier)
	})
}

// warnFailed logs why nothing was decided, where it is a mistake of the program.
func (g *Guard) warnFailed(ru *rule, cost int64, err error) {
	switch {
	case failedOtherwise(err):
	case cost < 0:
		g.warnCostBelow(ru, cost)
	default:
		g.warnStore(ru, err)
	}
}

// warnStore logs, once for each rule, that a store has failed with an error that does not say so.
func (g *Guard) warnStore(ru *rule, err error) {
	ru.warned.store.Do(func() {
		g.logger().Error("weir: the store has failed with an error that is not a *core.StoreError, so that requests get 503 whatever the policy's fail word is; let the store wrap it in one",
			"policy", ru.name, "error", logged(err.Error()), "code", codeStore)
	})
}

// warnForeign logs, once for each rule, that its handler was made for another framework.
func (g *Guard) warnForeign(x Exchange, v *Verdict) {
	v.rule.warned.foreign.Do(func() {
		adapter, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", x), "*"), ".")
		g.logger().Error("weir: an over-limit handler is of another framework; a plain answer is sent",
			"framework", adapter, "policy", v.Policy, "handler", v.rule.OverLimit.String(), "code", codeForeign)
	})
}

// warnDetach logs, once for each rule, that it gives back the permit of a connection that is still served.
func (g *Guard) warnDetach(ru *rule, route string) {
	ru.warned.detach.Do(func() {
		g.logger().Warn("weir: a connection is served after its handler has returned, which gives back its permit; call guard.Detach in the handler, and Claim in the code that serves the connection",
			"policy", ru.name, "route", logged(route), "code", codeDetach)
	})
}

// warnRepeat logs, once for each rule, that its Guard is mounted twice.
func (g *Guard) warnRepeat(ru *rule, route string) {
	ru.warned.repeat.Do(func() {
		g.logger().Warn("weir: a guard is mounted twice in one request, which it counts twice", "policy", ru.name, "route", logged(route), "code", codeMounted)
	})
}

// warnTaken logs, once for each entry, that a request has taken a route other than the one that was found, so that the
// entry did not hold, or held for a request that it is not for.
func (g *Guard) warnTaken(e *entry, found, taken string) {
	if e.warned.CompareAndSwap(false, true) {
		g.logger().Warn("weir: a request took a route other than the one found before, so that the wrong entry of Routes was asked; mount the limiter where its route is known, or let the adapter find that",
			"entry", e.place(), "found", found, "taken", taken, "code", codeOverlooked)
	}
}

// warnUnheld logs, once for each entry, that it did not hold for a request that was answered and whose path is like it.
func (g *Guard) warnUnheld(e *entry, found string) {
	if e.warned.CompareAndSwap(false, true) {
		g.logger().Warn("weir: an entry of Routes did not hold for a request whose path is like it, because another route was found; write the entry as the router has it, or mount the limiter where its route is known",
			"entry", e.place(), "found", found, "code", codeOverlooked)
	}
}

// warnMethod logs, once for each entry, that its route takes other methods, too.
func (g *Guard) warnMethod(e *entry) {
	if e.warned.CompareAndSwap(false, true) {
		g.logger().Warn("weir: an entry of Routes names one method, and its route takes every method, so that others pass it; leave the method out of the entry, or register the route with it",
			"entry", e.place(), "found", e.pattern, "code", codeOverlooked)
	}
}
