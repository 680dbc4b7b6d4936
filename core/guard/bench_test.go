package guard_test

import (
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// BenchmarkGuardCheck is a check alone; the headers it leads to are another matter.
func BenchmarkGuardCheck(b *testing.B) {
	for name, policy := range map[string]string{"admitted": "2147483648/1s", "refused": "1/366d"} {
		b.Run(name, func(b *testing.B) {
			g := newGuard(b, guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}})
			r := from(alice)
			g.Check(r)
			b.ReportAllocs()
			for b.Loop() {
				v := g.Check(r)
				v.Finish(guard.Final{})
			}
		})
		b.Run(name+" with headers", func(b *testing.B) {
			g := newGuard(b, guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}})
			r, h := from(alice), header{}
			g.Check(r)
			b.ReportAllocs()
			for b.Loop() {
				v := g.Check(r)
				clear(h)
				v.SetHeaders(h)
				v.Finish(guard.Final{})
			}
		})
	}
}

// BenchmarkSlowestRequest changes 1000 tiers and 1000 keys of a policy while requests come at a steady pace, and reports
// the slowest of them in microseconds; "quiet" changes nothing, and "unprepared" has a Source that prepares nothing.
// They take turns, so that "slowest/quiet", the ratio of the medians of their slowest, is of one machine at one time.
func BenchmarkSlowestRequest(b *testing.B) {
	const each = 1000
	texts := func(n int) *guard.Set {
		set := &guard.Set{
			Policies: map[string]string{"default": strconv.Itoa(n+each) + "/1h"},
			Tiers:    map[string]map[string]string{"default": {}}, Keys: map[string]map[string]string{"default": {}},
		}
		for i := range each {
			set.Tiers["default"]["t"+strconv.Itoa(i)] = strconv.Itoa(n+i) + "/1h"
			set.Keys["default"]["ip=198.51.100."+strconv.Itoa(i)] = strconv.Itoa(n+each+i) + "/1h"
		}
		return set
	}
	prepared, unprepared := new(preparing), new(showing)
	build := func(s guard.Source) *guard.Guard {
		return newGuard(b, guard.Config{
			Rule:   guard.Rule{Policy: "10/1h", Tier: func(keyfunc.Request) string { return "t7" }},
			Source: s,
		})
	}
	withPrepared, withUnprepared := build(prepared), build(unprepared)
	slowest := map[string][]time.Duration{}
	for n := 1; b.Loop(); n++ {
		for _, c := range []struct {
			name   string
			guard  *guard.Guard
			change func()
		}{
			{"quiet", withPrepared, func() {}},
			{"prepared", withPrepared, func() { prepared.show(texts(n * 10_000)) }},
			{"unprepared", withUnprepared, func() { unprepared.show(texts(n * 10_000)) }},
		} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.change()
			}()
			slow, r := time.Duration(0), from(alice)
			for more, late := true, 0; more || late < 100; {
				began := time.Now()
				c.guard.Check(r)
				slow = max(slow, time.Since(began))
				select {
				case <-done:
					more = false
					late++ // some requests come when it is shown
				default:
				}
				runtime.Gosched()
			}
			slowest[c.name] = append(slowest[c.name], slow)
		}
	}
	median := func(name string) float64 {
		all := slowest[name]
		slices.Sort(all)
		return float64(all[len(all)/2].Microseconds())
	}
	for name := range slowest {
		b.ReportMetric(median(name), name+"-us")
	}
	b.ReportMetric(median("prepared")-median("quiet"), "slower-us")
	b.ReportMetric(median("prepared")/max(1, median("quiet")), "slowest/quiet")
	b.ReportMetric(0, "ns/op")
}
