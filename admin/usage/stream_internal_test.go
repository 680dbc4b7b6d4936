package usage

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/stats"
)

// TestStream: what was added is there, and after a rewrite the sums of ten minutes are, in records of ten minutes before
// one of the minutes and of one minute after it.
func TestStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s stream
		want := map[int64]stats.UsageCounts{}
		minute, least, fine := int64(29_000_000), int64(0), int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "records") {
			minute += rapid.Int64Range(1, 15).Draw(t, "minutes")
			c := stats.UsageCounts{
				Admitted: rapid.Uint64().Draw(t, "admitted"), Trial: rapid.Uint64Range(0, 1).Draw(t, "trial"), Waited: rapid.Uint64Range(0, 200).Draw(t, "waited"),
			}
			s.add(record{minute: minute, UsageCounts: c})
			want[minute] = c
			if rapid.IntRange(0, 15).Draw(t, "rewrite") == 0 {
				fine = max(fine, minute-rapid.Int64Range(0, 40).Draw(t, "fine"))
				least = max(least, fine-rapid.Int64Range(0, 60).Draw(t, "kept"))
				s.rewrite(least, fine)
			}
		}
		last := int64(0)
		s.all(func(r record) {
			if r.minute < last || r.end() <= least || r.coarse && (r.minute%10 != 0 || r.end() > fine) {
				t.Fatalf("the record %+v after the minute %d; kept since %d, fine since %d", r, last, least, fine)
			}
			var sum stats.UsageCounts
			for m := r.minute; m < r.end(); m++ {
				if m >= least {
					sum.Add(want[m])
				}
			}
			if r.minute >= least && sum != r.UsageCounts {
				t.Fatalf("the record %+v, want %+v", r, sum)
			}
			last = r.end()
			for m := r.minute; m < r.end(); m++ {
				delete(want, m)
			}
		})
		for m, c := range want {
			if m >= least && c != (stats.UsageCounts{}) {
				t.Fatalf("the minute %d is gone; kept since %d", m, least)
			}
		}
	})
}
