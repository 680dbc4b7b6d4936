package inwords

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func TestChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to   string
		fits, kept bool
		together   string
	}{
		{"100/1h", "1000/1h", true, true, "what the larger numbers admit"},
		{"100/1h", "100/1m", true, false, "the sum of both"}, // the bucket fills in another time
		{"100/1h", "100/1h; epoch 1", true, false, "the sum of both"},
		{"100/1h; epoch 3", "9/1h", true, true, "what the larger numbers admit"}, // what is left out is as before
		{"100/1h", "100/1h; shadow", true, true, "what the larger numbers admit"},
		{"100/1h fixed-window", "1000/1d fixed-window", true, true, "what the larger numbers admit"},
		{"100/1h fixed-window", "100/1h", false, false, "the sum of both"},
		{"100/1h token-bucket", "10/1h token-bucket", true, true, "what the larger bucket admits, and mostly far less"},
		{"100/1h", "100/1h; wait 2s", false, false, "the sum of both"},
		{"20 concurrent", "10 concurrent", true, true, "what the larger numbers admit"},
	} {
		p := core.MustParse(c.from)
		q, err := p.ParseLike(c.to)
		require.NoError(t, err)
		got := Between(p, q, c.to)
		assert.Equal(t, c.fits, got.Fits, "%s, then %s: %s", c.from, c.to, got.Why)
		assert.Equal(t, c.kept, got.Kept, "%s, then %s", c.from, c.to)
		assert.Equal(t, c.together, got.Together, "%s, then %s", c.from, c.to)
		assert.Len(t, got.Counts, len(q.Limits()))
	}
}
