package guard

import "context"

// What only Serve needs, for tests.

func (v *Verdict) NeedsFinal() bool   { return v.owed != nil && v.owed.settles }
func (v *Verdict) NeedsContext() bool { return v.derives() }

// Context returns the context of the handler.
func (v *Verdict) Context(ctx context.Context) context.Context {
	if v.derives() {
		return v.context(ctx)
	}
	return ctx
}

// AfterKeys returns the number of keys of which a request with After is under way.
func (g *Guard) AfterKeys() int {
	g.afters.mu.Lock()
	defer g.afters.mu.Unlock()
	return len(g.afters.keys)
}

// LintCodes are those of warnings, and LogCodes those of what is logged in use.
var (
	LintCodes = []string{
		codeUnmatched, codeNoRoutes, codeRawPath, codeAddressHeader, codeKeyBehind, codeCostUnused, codeTwice, codeSameKey, codeShortWait, codeWaiting, codePermitsWait, codeTiersApart, codeEarlier, codeMethods, codeNumbers, codeBlockedTrial, codeUnmatchedKey,
		codeWideFirst, codeHeldPermits, codeNotNarrow, codeUnnamed,
	}
	LogCodes = []string{
		codeNoRoute, codeNoKey, codeProxy, codeCost, codeKey, codeAddress, codeTier, codeStore, codeForeign, codeMounted, codeOverlooked, codeNumbers,
		codeUncharged, codeUnreported, codeStatus, codeUnasked, codeDetach, codeCostBelow, codeUnnamed,
	}
)

// ListNames reads the names in a list, with their quotes, and their r.
func ListNames(s string) (names []string, remaining []int64, ok bool) {
	list, ok := readLimits(s)
	for _, l := range list {
		names, remaining = append(names, l.Name), append(remaining, l.remaining)
	}
	return names, remaining, ok
}

// Closed returns how many routes StrictRoutes has closed.
func Closed(g *Guard) (n int) {
	g.routes.closed.Range(func(any, any) bool { n++; return true })
	return n
}

// SharedNumbers returns how many numbers the guards have now: those of one policy may share them.
func SharedNumbers(guards ...*Guard) int {
	different := map[*numbers]bool{}
	for _, g := range guards {
		for _, ru := range g.current().rules {
			different[ru.numbers] = true
		}
	}
	return len(different)
}
