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

// BenchmarkSlowestRequest changes 1000 tiers and 1000 keys of a policy while requests come one after the other, and
// reports the median of the slowest of each change, in microseconds:
//
//	quiet        nothing changes, for as long as a change takes
//	elsewhere    the same change is prepared for another Guard
//	prepared     the Source prepares the change
//	unprepared   the first request that sees the change prepares it
//
// They take turns, so that they are of one machine at one time. What the change itself costs a request is the
// difference between prepared and quiet; between elsewhere and quiet it is that of sharing the processors.
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
	build := func(s guard.Source) *guard.Guard {
		return newGuard(b, guard.Config{
			Rule:   guard.Rule{Policy: "10/1h", Tier: func(keyfunc.Request) string { return "t7" }},
			Source: s,
		})
	}
	here, elsewhere, unprepared := new(preparing), new(preparing), new(showing)
	g, another, without := build(here), build(elsewhere), build(unprepared)
	took := time.Millisecond // to prepare one
	slowest := map[string][]time.Duration{}
	for n := 10_000; b.Loop(); n += 10_000 {
		set := texts(n)
		for _, c := range []struct {
			name   string
			guard  *guard.Guard
			change func()
		}{
			{"quiet", g, func() { <-time.After(took) }},
			{"elsewhere", g, func() { elsewhere.show(set) }},
			{"prepared", g, func() {
				began := time.Now()
				here.show(set)
				took = time.Since(began)
			}},
			{"unprepared", without, func() { unprepared.show(set) }},
		} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.change()
			}()
			slow, r := time.Duration(0), from(alice)
			for changing, after := true, 0; changing || after < 100; {
				began := time.Now()
				runtime.Gosched() // a request comes when it may run
				c.guard.Check(r)
				slow = max(slow, time.Since(began))
				select {
				case <-done:
					changing = false
					after++ // some requests come when it is shown
				default:
				}
			}
			slowest[c.name] = append(slowest[c.name], slow)
		}
	}
	runtime.KeepAlive(another)
	median := func(name string) float64 {
		all := slices.Clone(slowest[name])
		slices.Sort(all)
		return float64(all[len(all)/2].Nanoseconds()) / 1000
	}
	for name := range slowest {
		b.ReportMetric(median(name), name+"-us")
	}
	b.ReportMetric(median("prepared")/median("quiet"), "prepared/quiet")
	b.ReportMetric(median("prepared")/median("unprepared"), "prepared/unprepared")
	b.ReportMetric(0, "ns/op")
}
