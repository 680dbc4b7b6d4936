package followers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/stats"
)

// hashing is a store that hashes its keys.
type hashing struct {
	core.Store
	secret string
}

func (h hashing) Location() stats.Location   { return stats.Location{Prefix: "p", Hashed: true} }
func (h hashing) ScoreKey(key string) string { return "~" + h.secret + key }

// mute is a store that does not say where it counts, and cannot be compared.
type mute struct {
	core.Store
	_ []int
}

// TestUsage: what is announced of keys is no more than what their stores show.
func TestUsage(t *testing.T) {
	t.Parallel()
	plain, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	rules := []follow.Rule{
		{Policy: "clear", Store: plain},
		{Policy: "hashed", Store: hashing{secret: "1"}},
		{Policy: "mute", Store: mute{}},
		{Policy: "two secrets", Store: hashing{secret: "1"}},
		{Policy: "two secrets", Store: hashing{secret: "2"}},
		{Policy: "one secret", Store: hashing{secret: "1"}},
		{Policy: "one secret", Store: hashing{secret: "1"}},
		{Policy: "both", Store: plain},
		{Policy: "both", Store: hashing{secret: "1"}},
		{Policy: "both", Store: plain},
		{Policy: "mute too", Store: plain},
		{Policy: "mute too", Store: mute{}},
		{Policy: "mute too", Store: hashing{}},
		{Policy: "none"},
	}
	fs := Followers{all: []follower{{Follower: follow.NewFollower(rules[:5], nil)}, {Follower: follow.NewFollower(rules[5:], nil)}}}
	u := stats.Usage{Omitted: 3, Policies: []stats.PolicyUsage{{Policy: "another"}}}
	for _, r := range rules {
		u.Policies = append(u.Policies, stats.PolicyUsage{
			Policy:  r.Policy,
			Busiest: stats.TopKeys{For: 7, Keys: []stats.KeyCount{{Key: "user=7", Count: 2, Error: 1}}},
			Refused: stats.TopKeys{For: 8, Keys: []stats.KeyCount{{Key: "user=7", Count: 3}}},
		})
	}
	got := map[string]string{}
	shown := fs.Usage(u)
	for _, p := range shown.Policies {
		got[p.Policy] = ""
		if len(p.Busiest.Keys) > 0 {
			assert.Equal(t, stats.KeyCount{Key: p.Busiest.Keys[0].Key, Count: 2, Error: 1}, p.Busiest.Keys[0])
			assert.Equal(t, p.Busiest.Keys[0].Key, p.Refused.Keys[0].Key)
			got[p.Policy] = p.Busiest.Keys[0].Key
		}
	}
	assert.Equal(t, map[string]string{
		"clear": "user=7", "hashed": "~1user=7", "mute": "", "two secrets": "", "one secret": "~1user=7",
		"both": "~1user=7", "mute too": "", "none": "",
	}, got)
	assert.Equal(t, 3, shown.Omitted)
	assert.Equal(t, "user=7", u.Policies[2].Busiest.Keys[0].Key, "what was given is as before")
}
