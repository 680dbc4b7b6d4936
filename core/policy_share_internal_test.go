package core

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One of several processes admits its part: the rate exactly, where the algorithm can, and whole units of the rest.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		whole     string
		processes int
		share     string
	}{
		{"100/1m", 4, "25/1m"},
		{"3/1s", 4, "3/4s burst 1"},
		{"10/1s burst 5 debt 3", 4, "5/2s burst 2 debt 1"},
		{"1/1s", 1_000_000, "1/11d13h46m40s"},
		{"2147483648/1s", 3, "2147483648/3s burst 715827883"},
		{"2/1s token-bucket", 4, "1/2s token-bucket"},
		{"100/1m token-bucket debt 10", 3, "34/1m1s200ms token-bucket debt 4"},
		{"5/1s leaky-bucket burst 3", 2, "5/2s leaky-bucket burst 2"},
		{"10/10s fixed-window", 4, "3/10s fixed-window"},
		{"1000/1d fixed-window calendar Europe/Berlin", 3, "334/1d fixed-window calendar Europe/Berlin"},
		{"100/1mo fixed-window calendar UTC", 200, "1/1mo fixed-window calendar UTC"},
		{"100/10s sliding-window buckets 5", 3, "34/10s sliding-window buckets 5"},
		{"100/10s sliding-counter", 3, "34/10s sliding-counter"},
		{"1000/1m sliding-log", 7, "143/1m sliding-log"},
		{"20 concurrent lease 1m", 3, "7 concurrent lease 1m"},
		// In the order of the whole, whatever order they would have by themselves.
		{"10/1s, 3/1500ms, 5 concurrent", 5, "2/1s, 3/7s500ms burst 1, 1 concurrent"},
		{"7/1s, 4/1100ms", 4, "7/4s burst 2, 1/1s100ms"},
	} {
		p := MustParse(fmt.Sprintf("%s; fail local 1/%d", c.whole, c.processes))
		require.NotNil(t, p.p.share, c.whole)
		assert.Equal(t, c.share, p.Local().String(), c.whole)
		assert.Equal(t, p.Options().Wait, p.Local().Options().Wait)
		named := p.Named("other")
		assert.Equal(t, "other: "+c.share, named.Local().String())
	}
	alone := MustParse("10/1s; fail local 1/1")
	assert.Equal(t, "10/1s; fail local 1/1", alone.String())
	assert.Equal(t, alone, alone.Local())
	assert.Equal(t, Policy{}, Policy{}.Local())
}

// The share is no part of where state is kept, nor of what a store is asked.
func TestShareChangesNoKey(t *testing.T) {
	for _, text := range []string{"10/1s", "10/1s, 100/1m, 5 concurrent", "7/1s, 4/1100ms; wait 1s", "10/1s sliding-window"} {
		whole := MustParse(text)
		for _, n := range []int{2, 3, 100} {
			shared, err := NewPolicy("", PolicyOptions{Wait: whole.Options().Wait, Processes: n}, whole.Limits()...)
			require.NoError(t, err)
			assert.Equal(t, whole.Spec().Shape(), shared.Spec().Shape())
			assert.Equal(t, whole.Spec().Kinds(), shared.Spec().Kinds())
			take := Take{Cost: 3}
			assert.Equal(t, whole.Spec().TakeArgs(take, 1), shared.Spec().TakeArgs(take, 1))
		}
	}
}

func TestShareRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"1/365d; fail local 1/4": `core: policy "1/365d; fail local 1/4": Processes is 4, but the share of 1/365d cannot be counted ` +
			`(Period is 366d1us; give 1ms to 366d); give fewer processes, or leave the share out`,
		"1/366d leaky-bucket; fail local 1/1000000": "the share of 1/366d leaky-bucket cannot be counted",
		"1/300d token-bucket; fail local 1/2":       "the share of 1/300d token-bucket cannot be counted",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want)
	}
	for want, o := range map[string]PolicyOptions{
		"Processes is -1; give 1 to 1000000, or 0 for no share":                                                  {Processes: -1},
		"Processes is 1000001; give 1 to 1000000, or 0 for no share":                                             {Processes: 1_000_001},
		`Processes is 2, but "fail open" counts nothing that could be shared; leave it out, or give FailLocal`:   {Processes: 2, Fail: FailOpen},
		`Processes is 3, but "fail closed" counts nothing that could be shared; leave it out, or give FailLocal`: {Processes: 3, Fail: FailClosed},
	} {
		_, err := NewPolicy("", o, PerSecond(10))
		require.EqualError(t, err, "core: "+want)
	}
}
