package guard_test

import (
	"testing"

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
