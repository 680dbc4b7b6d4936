package main

import (
	"cmp"
	"fmt"
	"slices"
)

// admission is units that were admitted, and when, in microseconds by the clock of what admitted them.
type admission struct{ At, Units int64 }

// limit bounds admissions. Times are in microseconds.
type limit struct {
	burst  int64
	every  int64 // in which one unit comes back; 0 for a log
	window int64 // of a log
}

// ledger holds admissions against their limit. It need not see all of them: what fits with others fits
// without them.
type ledger struct {
	limit
	filled, at int64       // the level of a bucket in microseconds, and when it was that
	recent     []admission // those in a log
}

// replay adds admissions. All that were made until lost were forgotten then, if it is not 0.
func (l *ledger) replay(all []admission, lost int64) error {
	slices.SortFunc(all, func(a, b admission) int { return cmp.Compare(a.At, b.At) })
	for _, a := range all {
		if lost > 0 && a.At > lost {
			lost, l.filled, l.recent = 0, 0, nil
		}
		if err := l.add(a); err != nil {
			return err
		}
	}
	if lost > 0 {
		l.filled, l.recent = 0, nil
	}
	return nil
}

func (l *ledger) add(a admission) error {
	if l.window > 0 {
		l.recent = append(l.recent, a)
		sum := int64(0)
		for len(l.recent) > 0 && l.recent[0].At <= a.At-l.window {
			l.recent = l.recent[1:]
		}
		for _, r := range l.recent {
			sum += r.Units
		}
		if sum > l.burst {
			return fmt.Errorf("%d units within %d us, of %d", sum, l.window, l.burst)
		}
		return nil
	}
	if a.At > l.at {
		l.filled, l.at = max(0, l.filled-(a.At-l.at)), a.At
	}
	if l.filled += a.Units * l.every; l.filled > l.burst*l.every {
		return fmt.Errorf("%d units at once, of %d", (l.filled+l.every-1)/l.every, l.burst)
	}
	return nil
}

// tally counts the units of one key in a round by their answers.
type tally struct {
	Surely  int64 // charged
	Perhaps int64 // charged or not
	Back    int64 // given back, or still to be
}

// check holds what a key was charged in a round against what was answered. lost says that what was charged before some
// time in the round has been forgotten.
func (t tally) check(used int64, lost bool) error {
	low, high := t.Surely-t.Back, t.Surely+t.Perhaps
	if lost {
		low = 0
	}
	switch {
	case used < low:
		return fmt.Errorf("%d units are charged, of at least %d: some are lost", used, low)
	case used > high:
		return fmt.Errorf("%d units are charged, of at most %d: something was executed twice", used, high)
	}
	return nil
}

// held is a permit in the hands of its holder.
type held struct{ From, To int64 }

// most returns how many were held at the same time. Those that were held at the time lost do not count: the server had
// forgotten them.
func most(all []held, lost int64) int {
	type step struct {
		at int64
		by int
	}
	var steps []step
	for _, h := range all {
		if h.From <= lost && lost <= h.To {
			continue
		}
		steps = append(steps, step{h.From, 1}, step{h.To, -1})
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now, top := 0, 0
	for _, s := range steps {
		now += s.by
		top = max(top, now)
	}
	return top
}
