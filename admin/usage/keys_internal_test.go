package usage

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/stats"
)

// TestMergeIsTrue: whatever parts of their counts processes tell, each key that is shown was counted between Least and
// Most in all of them, and any other one at most absent.
func TestMergeIsTrue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &merge{keys: map[string]bounds{}}
		total := map[string]uint64{}
		for range rapid.IntRange(1, 8).Draw(t, "processes") {
			tells := rapid.IntRange(1, 50).Draw(t, "tells")
			n := rapid.IntRange(0, 120).Draw(t, "keys")
			first := rapid.IntRange(0, 200).Draw(t, "first")
			count := rapid.Uint64Range(uint64(n), 500).Draw(t, "most")
			var list stats.TopKeys
			for i := range n { // the first ones are counted most
				key := fmt.Sprint("user=", first+i)
				total[key] += count
				if i < tells {
					wrong := rapid.Uint64Range(0, 3).Draw(t, "error")
					list.Keys = append(list.Keys, stats.KeyCount{Key: key, Count: count + wrong/2, Error: wrong})
					if list.Keys[i].Error > list.Keys[i].Count {
						list.Keys[i].Error = list.Keys[i].Count
					}
				}
				count -= min(count, rapid.Uint64Range(0, 2).Draw(t, "less"))
			}
			m.add(list, n > tells)
		}
		if len(m.keys) > maxMerged {
			t.Fatalf("%d keys", len(m.keys))
		}
		shown := map[string]bool{}
		for _, k := range m.sorted() {
			shown[k.Key] = true
			if total[k.Key] < k.Least || total[k.Key] > k.Most {
				t.Fatalf("%s was counted %d, and shown as %d to %d", k.Key, total[k.Key], k.Least, k.Most)
			}
		}
		for key, n := range total {
			if !shown[key] && int64(n) > m.absent { //nolint:gosec // it is small
				t.Fatalf("%s was counted %d, and is not shown; %d at most", key, n, m.absent)
			}
		}
	})
}
