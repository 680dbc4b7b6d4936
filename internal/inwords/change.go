package inwords

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// Change describes what happens to live counts when a policy's text changes.
type Change struct {
	// Fits reports whether a running service can use the new text, and Why the reason if it cannot.
	Fits bool   `json:"fits"`
	Why  string `json:"why,omitempty"`
	// Kept reports whether counts are kept; otherwise everybody starts afresh.
	Kept bool `json:"kept"`
	// Counts has a sentence for each limit: what of its counts is kept.
	Counts []string `json:"counts"`
	// Together is the bound for both texts, while some processes have the old one and some the new one.
	Together string `json:"together"`
}

// Between works out what becomes of the counts of p under q, which was read from text.
func Between(p, q core.Policy, text string) Change {
	c := Change{Fits: true, Kept: q.Spec().Shape() == p.Spec().Shape(), Counts: []string{}}
	if _, err := enforce.Fits(p, text); err != nil {
		c.Fits, c.Why = false, strings.TrimPrefix(err.Error(), "enforce: ")
	}
	meters := false
	for _, l := range q.Limits() {
		how := kept[l.Algorithm]
		if l.Algorithm != core.Concurrent && !c.Kept {
			how = "starts afresh, as if nobody had used anything"
		}
		if l.Algorithm == core.Concurrent && q.Spec().PermitShape() != p.Spec().PermitShape() {
			how = "starts afresh: permits of before count apart until they are released"
		}
		meters = meters || l.Algorithm == core.TokenBucket
		c.Counts = append(c.Counts, fmt.Sprintf("%v: %s", l, how))
	}
	switch {
	case !c.Kept:
		c.Together = "the sum of both"
	case meters:
		c.Together = "what the larger bucket admits, and mostly far less"
	default:
		c.Together = "what the larger numbers admit"
	}
	return c
}

// kept has the sentences for counts that are kept, by algorithm.
var kept = map[core.Algorithm]string{
	core.GCRA:           "the fraction in use is kept: who had used up half has used up half",
	core.LeakyBucket:    "the fraction in use is kept: a queue that was half full is half full",
	core.TokenBucket:    "the tokens that are left are kept, until the next refill",
	core.FixedWindow:    "the units in the window are kept",
	core.SlidingWindow:  "the units in the window are kept, each until its time is over",
	core.SlidingCounter: "the units in both windows are kept",
	core.SlidingLog:     "the units in the log are kept, each until its time is over",
	core.Concurrent:     "the permits that are held are kept, also more than there are now",
}

// Lines returns the change as sentences for people.
func (c Change) Lines() []string {
	first := "a running service can use it"
	if !c.Fits {
		first = "no running service can use it: " + c.Why
	}
	lines := append([]string{first}, c.Counts...)
	return append(lines, "while old and new numbers meet, they admit together: "+c.Together)
}
