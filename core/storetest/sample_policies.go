package storetest

import (
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func policy(text string) core.Policy { return core.MustParse("storetest: " + text) }

// tens are limits of every kind that admit ten at once.
func tens() []string {
	return withOthers([]string{
		"10/10s", "10/10s token-bucket", "10/10s leaky-bucket", "10/10s fixed-window", "10/10s fixed-window aligned",
		"10/1m fixed-window calendar Europe/Berlin", "10/10s sliding-window", "10/10s sliding-window buckets 3", "10/10s sliding-counter",
		"10/10s sliding-log",
	}, "10/10s")
}

// withOthers are the texts, and those numbers of every algorithm that the texts leave
// out: so the suite holds for one that it does not know by name.
func withOthers(texts []string, numbers ...string) []string {
	known := map[core.Algorithm]bool{}
	for _, text := range texts {
		for _, l := range policy(text).Limits() {
			known[l.Algorithm] = true
		}
	}
	for _, a := range Algorithms() {
		for i, n := range numbers {
			text := n + " " + a.String()
			if _, err := core.Parse(text); !known[a] && (err == nil || i == 0) { // one at least must be possible
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// queues reports whether units that come at once leave one after another.
func queues(s *subject, p core.Policy) bool {
	ref, t := Reference(), s.of(p, "queues", 0, 1)
	_, err := ref.Take(s.Context(), t)
	require.NoError(s, err)
	second, err := ref.Take(s.Context(), t)
	require.NoError(s, err)
	return second.Delay > 0
}

// returnsByWindow reports whether a unit weighs in full for a period at least.
func returnsByWindow(s *subject, p core.Policy) bool {
	res, err := Reference().Take(s.Context(), s.of(p, "window", 0, 1))
	require.NoError(s, err)
	return res.ResetAfter >= p.Limits()[0].Period
}

// mix is one policy of three kinds, of which the last is the tightest.
const mix = "20/1s, 1000/1d fixed-window calendar Europe/Berlin, 5/1m sliding-log"
