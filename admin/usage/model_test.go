package usage_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core/stats"
)

// start is the time at which the tests begin.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at names a count of the model.
type at struct{ policy, tier string }

// counting is a process of the model.
type counting struct {
	began   time.Time
	counted time.Duration // until it was read
	sums    map[at]stats.UsageCounts
	mute    bool // it cannot be read
}

func (c *counting) usage(now time.Time) *stats.Usage {
	u := &stats.Usage{For: now.Sub(c.began).Truncate(time.Second)}
	byPolicy := map[string][]stats.TierUsage{}
	for at, sum := range c.sums {
		byPolicy[at.policy] = append(byPolicy[at.policy], stats.TierUsage{Tier: at.tier, UsageCounts: sum})
	}
	for _, name := range slices.Sorted(maps.Keys(byPolicy)) {
		u.Policies = append(u.Policies, stats.PolicyUsage{Policy: name, Tiers: byPolicy[name]})
	}
	return u
}

// fleet is an app whose processes count, and what a plain reader knows of it: a map for each minute.
type fleet struct {
	now       time.Time
	processes map[string]*counting
	broken    bool // nothing can be read

	read    time.Time
	pending map[string]stats.UsageCounts // of readings that have failed
	known   map[string]*counting         // as they were read last
	minutes map[string]map[int64]stats.UsageCounts
	missing int // minutes
	ended   int
}

func (f *fleet) reader(_ context.Context, app string, yield func(string, *stats.Usage, error)) error {
	if app != "pay" {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(f.processes)) {
		if c := f.processes[id]; c.mute {
			yield(id, nil, errors.New("not a usage"))
		} else {
			yield(id, c.usage(f.now), nil)
		}
	}
	if f.broken {
		return errors.New("no route to host")
	}
	return nil
}

// less returns what was counted since sums were others; all if one of them is smaller.
func less(now, before stats.UsageCounts) stats.UsageCounts {
	d := stats.UsageCounts{
		Admitted: now.Admitted - before.Admitted, Refused: now.Refused - before.Refused, Trial: now.Trial - before.Trial,
		Failed: now.Failed - before.Failed, Local: now.Local - before.Local, Waited: now.Waited - before.Waited,
	}
	if now.Admitted < before.Admitted || now.Refused < before.Refused || now.Trial < before.Trial ||
		now.Failed < before.Failed || now.Local < before.Local || now.Waited < before.Waited {
		return now
	}
	return d
}

// learn notes what a reading adds to the minutes, which it does if it succeeds.
func (f *fleet) learn() {
	known := map[string]*counting{}
	for id, c := range f.processes {
		before := f.known[id]
		if c.mute {
			if before != nil {
				known[id] = before
			}
			continue
		}
		counts := before != nil || !f.read.IsZero() && f.now.Sub(c.began).Truncate(time.Second) <= f.now.Sub(f.read)+40*time.Second
		for at, sum := range c.sums {
			if before != nil && f.now.Sub(c.began) >= before.counted {
				sum = less(sum, before.sums[at])
			}
			if counts {
				of := f.pending[at.policy]
				of.Add(sum)
				f.pending[at.policy] = of
			}
		}
		known[id] = &counting{counted: f.now.Sub(c.began), sums: maps.Clone(c.sums)}
	}
	for id, c := range f.known {
		switch {
		case known[id] != nil:
		case f.broken: // nobody knows that it has ended
			known[id] = c
		default:
			f.ended++
		}
	}
	f.known = known
	if f.broken {
		return
	}
	minute, minutes := f.now.Unix()/60, int64(1)
	if !f.read.IsZero() {
		minutes = max(minute-f.read.Unix()/60, 1)
		f.missing += int(minutes) - 1
	}
	news := f.pending
	f.pending = map[string]stats.UsageCounts{}
	for policy, sum := range news {
		if f.minutes[policy] == nil {
			f.minutes[policy] = map[int64]stats.UsageCounts{}
		}
		for m := minute - minutes + 1; m <= minute; m++ {
			left := uint64(minute - m + 1)
			part := stats.UsageCounts{
				Admitted: sum.Admitted / left, Refused: sum.Refused / left, Trial: sum.Trial / left,
				Failed: sum.Failed / left, Local: sum.Local / left, Waited: sum.Waited / left,
			}
			sum = less(sum, part)
			part.Add(f.minutes[policy][m])
			f.minutes[policy][m] = part
		}
	}
	f.read = f.now
}

// check compares what a History shows with what the plain reader knows.
func (f *fleet) check(t *rapid.T, h *usage.History) (coarse bool) {
	for policy, minutes := range f.minutes {
		s := h.Policy("pay", policy, time.Time{})
		shown := map[int64]bool{}
		last := int64(0)
		for _, p := range s.Points {
			m := p.At.Unix() / 60
			if m < last {
				t.Fatalf("%s: the minute %d after %d", policy, m, last)
			}
			last = m + int64(p.Minutes)
			var want stats.UsageCounts
			for i := range int64(p.Minutes) {
				want.Add(minutes[m+i])
				shown[m+i] = true
			}
			if p.Minutes > 1 {
				coarse = true
				if !p.At.Before(s.Missed.Fine) {
					t.Fatalf("%s: %v is of %d minutes, and should be by the minute since %v", policy, p.At, p.Minutes, s.Missed.Fine)
				}
			} else if p.UsageCounts == (stats.UsageCounts{}) {
				t.Fatalf("%s: an empty point at %v", policy, p.At)
			}
			if p.UsageCounts != want && !p.At.Before(s.Missed.Since) {
				t.Fatalf("%s at %v: %+v, want %+v", policy, p.At, p.UsageCounts, want)
			}
		}
		for m, c := range minutes {
			if c != (stats.UsageCounts{}) && !shown[m] && !time.Unix(m*60, 0).Before(s.Missed.Since) {
				t.Fatalf("%s: the minute %v is missing (%+v), and there is %+v", policy, time.Unix(m*60, 0).UTC(), c, s.Missed)
			}
		}
	}
	return coarse
}

// TestHistoryIsTrue: whatever processes start, count, start again and end, and whenever somebody reads, the minutes are
// those of a plain reader that keeps everything; with less memory as well, in larger steps and for less time.
func TestHistoryIsTrue(t *testing.T) {
	t.Parallel()
	for name, budget := range map[string]int{"all": 64 << 20, "little": 7_000, "less": 5_500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coarse := false
			rapid.Check(t, func(t *rapid.T) {
				f := &fleet{
					now: start, processes: map[string]*counting{}, known: map[string]*counting{}, pending: map[string]stats.UsageCounts{},
					minutes: map[string]map[int64]stats.UsageCounts{},
				}
				h, err := usage.New(usage.Options{
					Apps: func(context.Context) ([]string, error) { return []string{"pay"}, nil },
					Read: f.reader, Budget: budget, Now: func() time.Time { return f.now },
				})
				if err != nil {
					t.Fatal(err)
				}
				// Numbers of a generator, as those of rapid are mostly small.
				random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)) //nolint:gosec // a test
				largest := []uint64{3, 200, 1 << 40}[random.IntN(3)]
				for range 600 {
					switch id := []string{"a", "b", "c", "d"}[random.IntN(4)]; random.IntN(40) {
					case 0:
						f.processes[id] = &counting{began: f.now, sums: map[at]stats.UsageCounts{}}
					case 1:
						delete(f.processes, id)
					case 2: // that has counted for long
						f.processes[id] = &counting{began: f.now.Add(-time.Hour), sums: map[at]stats.UsageCounts{{policy: "api"}: {Admitted: 1000}}}
					case 3:
						if f.processes[id] != nil {
							f.processes[id].mute = !f.processes[id].mute
						}
					case 4:
						f.broken = !f.broken
					case 5:
						f.now = f.now.Add(time.Duration(random.IntN(120)) * time.Minute)
					default:
						if c := f.processes[id]; c != nil {
							to := at{[]string{"api", "login"}[random.IntN(2)], []string{"", "pro"}[random.IntN(2)]}
							sum := c.sums[to]
							sum.Add(stats.UsageCounts{
								Admitted: random.Uint64N(largest), Refused: random.Uint64N(largest), Trial: random.Uint64N(3),
								Failed: random.Uint64N(2), Local: random.Uint64N(2), Waited: random.Uint64N(largest),
							})
							c.sums[to] = sum
						}
						f.now = f.now.Add(time.Duration(1+random.IntN(60)) * time.Second)
						if err := h.Round(t.Context()); (err != nil) != f.broken {
							t.Fatalf("the reading has failed with %v", err)
						}
						f.learn()
					}
				}
				coarse = f.check(t, h) || coarse
				if f.read.IsZero() {
					return
				}
				missed := h.Policy("pay", "api", time.Time{}).Missed
				running := int(max(f.now.Unix()/60-f.read.Unix()/60-1, 0))
				if budget == 64<<20 && f.now.Sub(start) < 23*time.Hour && (missed.Minutes != f.missing+running || missed.Ended != f.ended) {
					t.Fatalf("missed %+v, want %d minutes and %d processes", missed, f.missing+running, f.ended)
				}
				if size := h.Size(); size > budget {
					t.Fatalf("%d bytes, want %d at most", size, budget)
				}
			})
			assert.Equal(t, budget < 64<<20, coarse, "steps of ten minutes")
		})
	}
}
