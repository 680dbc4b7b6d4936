package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/core"
)

// epoch is the beginning of every simulation, in microseconds, a multiple of all periods.
const epoch = 1_800_000_000_000_000

// event is a request and its outcome.
type event struct {
	arrival

	admitted bool
	delay    time.Duration // until it departs, if admitted
}

// play lets the requests of a column arrive at a limit, in simulated time. Clients
// that try again do so until the pattern's span is over.
func play(ctx context.Context, p pattern, c column, limit core.Policy) ([]event, error) {
	store, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		return nil, err
	}
	var all []event
	waiting := slices.Clone(c.arrivals) // by time, and in order of coming
	for len(waiting) > 0 {
		a := waiting[0]
		waiting = waiting[1:]
		take := core.Take{Policy: limit, Key: a.key, Cost: 1, Now: epoch + (p.offset + a.at).Microseconds()}
		r, err := store.Take(ctx, take)
		if err != nil {
			return nil, fmt.Errorf("%v at %v: %w", limit, a.at, err)
		}
		all = append(all, event{a, r.Allowed(), r.Delay})
		if r.Allowed() || c.again == nil {
			continue
		}
		if a.at += c.again(r); a.at < p.span {
			i, _ := slices.BinarySearchFunc(waiting, a.at+1, func(w arrival, at time.Duration) int {
				return cmp.Compare(w.at, at)
			})
			waiting = slices.Insert(waiting, i, a)
		}
	}
	return all, nil
}

// times returns the instants at which admitted requests come, or, if they are to have waited for their turn, leave.
func times(all []event, waited bool) (at []time.Duration) {
	for _, e := range all {
		switch {
		case !e.admitted:
		case waited:
			at = append(at, e.at+e.delay)
		default:
			at = append(at, e.at)
		}
	}
	return at
}

// densest returns the most of the sorted instants that lie within less than a period.
func densest(at []time.Duration, period time.Duration) (most int) {
	first := 0
	for last := range at {
		for at[last]-at[first] >= period {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// bin is the time that a bar of a picture stands for.
const bin = time.Second

// counts holds the number of a column's events in each bin.
type counts struct {
	admitted, refused []float64
	departed          []float64 // of those admitted, when their turn has come
	others            []float64 // admitted, of clients that are not in view
}

func count(p pattern, c column, all []event) counts {
	n := int(p.span / bin)
	of := counts{make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)}
	for _, e := range all {
		i := int(e.at / bin)
		switch {
		case c.eyes != nil && !c.eyes(e.arrival):
			if e.admitted {
				of.others[i]++
			}
		case e.admitted:
			of.admitted[i]++
			if left := int((e.at + e.delay) / bin); left < n {
				of.departed[left]++
			}
		default:
			of.refused[i]++
		}
	}
	return of
}
