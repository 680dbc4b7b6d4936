package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExplainPermit(t *testing.T) {
	p := Permit{Policy: MustParse("permits: 3 concurrent lease 1s"), Key: "k", ID: "a"}
	for _, bad := range [][]int64{
		nil,
		{1},
		{0, 1, 0, 0},
		{1, 1, -1, 0},
		{1, 1, 0, -1},
		{maxNow + 1, 1, 0, 0},
		{1, 1, 0, 0, 0},
		{1000, 1, 0, 1000},
		{1000, 0, 0, 2000},
		{1000, -1 - 3, 900, 1500},
		{1000, -1 - 3, 0, 0},
		{1000, -1 - 3, 1 << 62, 1 << 62},
		{1000, 1, 0, 1 << 62},
	} {
		_, err := p.Explain(bad)
		require.Error(t, err, "%v", bad)
	}
	_, err := (&Permit{}).Explain([]int64{1, 1, 0, 0})
	require.Error(t, err)
	res, err := p.Explain([]int64{1000, -1 - 5, 1001, 800})
	require.NoError(t, err)
	us := time.Microsecond
	want := Result{Limit: 3, At: 1000, RetryAfter: us}
	want.SetEach(0, LimitResult{Refused: true, RetryAfter: us})
	assert.True(t, want.Equal(res), "nothing is negative: %+v", res)
}
