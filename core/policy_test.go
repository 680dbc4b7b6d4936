package core_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/lua"
)

// Faults 25 to 29: every mistake at once, and each names its field.
func TestNewPolicyTellsEveryMistake(t *testing.T) {
	good := core.PerSecond(1)
	for _, c := range []struct {
		name    string
		options core.Options
		limits  []core.Limit
		want    []string
	}{
		{"", core.Options{}, nil, []string{"core: a policy has 0 limits; give 1 to 4"}},
		{"", core.Options{}, []core.Limit{good, core.PerSecond(2), core.PerSecond(3), core.PerSecond(4), core.PerSecond(5)}, []string{"core: a policy has 5 limits; give 1 to 4"}},
		{"", core.Options{}, []core.Limit{{}}, []string{
			"core: limit 1 (0/0s): Rate is 0; give 1 to 2147483648 units",
			"core: limit 1 (0/0s): Period is 0s; give 1ms to 366d",
		}},
		{"", core.Options{}, []core.Limit{{Rate: 1, Period: time.Nanosecond}}, []string{"core: limit 1 (1/1ns): Period is 1ns; give 1ms to"}},
		{"", core.Options{}, []core.Limit{{Rate: 1, Period: time.Millisecond + 1}}, []string{"core: limit 1 (1/1ms1ns): Period is 1ms1ns; give whole microseconds"}},
		{"", core.Options{}, []core.Limit{{Rate: 1, Period: core.MaxPeriod + 1}}, []string{"core: limit 1 (1/366d1ns): Period is 366d1ns; give 1ms to 366d"}},
		{"", core.Options{}, []core.Limit{{Rate: 1, Period: -time.Second}}, []string{"core: limit 1 (1/-1s): Period is -1s"}},
		{"", core.Options{}, []core.Limit{{Rate: -1, Period: time.Second}}, []string{"Rate is -1"}},
		{"", core.Options{}, []core.Limit{{Rate: 1 << 53, Period: time.Second}}, []string{"Rate is 9007199254740992"}},
		{"", core.Options{}, []core.Limit{{Rate: core.MaxRate + 1, Period: time.Second}}, []string{"Rate is 2147483649"}},
		{"", core.Options{}, []core.Limit{{Rate: 1, Burst: -1, Period: time.Second}}, []string{"Burst is -1; give 1 to 2147483648 units, or 0 for the rate"}},
		{"", core.Options{}, []core.Limit{{Rate: 1, Burst: core.MaxRate + 1, Period: time.Second}}, []string{"Burst is 2147483649"}},
		{"", core.Options{}, []core.Limit{{Algorithm: 200, Rate: 1, Period: time.Second}}, []string{`core: limit 1 (1/1s Algorithm(200)): Algorithm is 200; give the constant for "gcra"`}},
		{"", core.Options{}, []core.Limit{{Rate: 1, Burst: 72, Period: core.MaxPeriod}}, []string{"core: limit 1 (1/366d burst 72): a burst of 72 at this rate takes more than 71 years to drain; give a smaller burst or a higher rate"}},
		{
			"a b",
			core.Options{Fail: 3},
			[]core.Limit{{Algorithm: 201, Rate: -1, Burst: -2, Period: 1}, good, {Rate: 1}, good},
			[]string{
				`core: policy name "a b": give 1 to 64 letters, digits, "_", "." or "-"`,
				"core: Fail is 3; give FailLocal, FailOpen or FailClosed",
				"core: limit 1 (-1/1ns Algorithm(201) burst -2): Algorithm is 201; give the constant for ",
				"core: limit 1 (-1/1ns Algorithm(201) burst -2): Rate is -1; give 1 to ",
				"core: limit 1 (-1/1ns Algorithm(201) burst -2): Burst is -2; give 1 to ",
				"core: limit 1 (-1/1ns Algorithm(201) burst -2): Period is 1ns; give 1ms to 366d",
				"core: limit 3 (1/0s): Period is 0s",
				"core: limit 4 (1/1s): the same as limit 2; leave one out",
			},
		},
	} {
		p, err := core.NewPolicy(c.name, c.options, c.limits...)
		require.Error(t, err)
		assert.True(t, p.IsZero())
		lines := strings.Split(err.Error(), "\n")
		require.Len(t, lines, len(c.want), "%v", err)
		for i, want := range c.want {
			assert.Contains(t, lines[i], want)
			assert.True(t, strings.HasPrefix(lines[i], "core: "), lines[i])
			assert.Equal(t, 1, strings.Count(lines[i], "core:"), lines[i])
		}
	}
}

func TestPolicyNames(t *testing.T) {
	for _, name := range []string{"", "a", "default", "A.b_c-9", "-", ".", strings.Repeat("n", 64)} {
		p, err := core.NewPolicy(name, core.Options{}, core.PerSecond(1))
		require.NoError(t, err, name)
		assert.Equal(t, name, p.Name())
	}
	p := core.MustParse("login: 5/1m; fail closed")
	for _, name := range []string{" ", "a b", "a:b", "a;b", "{a}", "ä", "a\n", "a\x00", strings.Repeat("n", 65), "a/b", `a"b`} { // fault 106
		_, err := core.NewPolicy(name, core.Options{}, core.PerSecond(1))
		require.ErrorContains(t, err, "core: policy name", name)
		assert.Panics(t, func() { p.Named(name) }, name)
	}
	assert.Panics(t, func() { p.Named("") })
	assert.Panics(t, func() { core.Policy{}.Named("a") })

	signup := p.Named("signup")
	assert.Equal(t, "signup: 5/1m; fail closed", signup.String())
	assert.Equal(t, "login: 5/1m; fail closed", p.String(), "the policy itself does not change")
	assert.Equal(t, p.Limits(), signup.Limits())
}

func TestPolicyIsAValue(t *testing.T) {
	p, q := core.MustParse("5/1m"), core.MustParse("6/1m")
	uses := map[core.Policy]int{p: 1, q: 2, {}: 3}
	assert.Equal(t, 1, uses[p])
	assert.Equal(t, 3, uses[core.Policy{}])
	r := p
	assert.True(t, p == r)
	assert.False(t, p == q)

	again := core.MustParse("5/1m")
	assert.False(t, p == again, "identity, not text")
	assert.Equal(t, p.String(), again.String())

	limits := []core.Limit{{Rate: 5, Period: time.Minute}}
	p, err := core.NewPolicy("", core.Options{}, limits...)
	require.NoError(t, err)
	assert.Zero(t, limits[0].Burst, "the caller's limits are left alone")
	limits[0].Rate = 99
	p.Limits()[0].Rate = 99
	assert.Equal(t, "5/1m", p.String())
}

func TestPolicyOrder(t *testing.T) {
	for _, text := range []string{"1000/1d, 20/1s burst 40, 20/1s, 30/1s", "30/1s, 20/1s, 20/1s burst 40, 1000/1d", "20/1s,30/1s,20/1s burst 40,1000/1d"} {
		p := core.MustParse(text)
		assert.Equal(t, "20/1s, 20/1s burst 40, 30/1s, 1000/1d", p.String(), text)
		assert.Equal(t, "gggg", p.Shape())
	}
}

func TestZeroPolicy(t *testing.T) {
	var p core.Policy
	assert.True(t, p.IsZero())
	assert.Empty(t, p.Name())
	assert.Empty(t, p.String())
	assert.Empty(t, p.Shape())
	assert.Nil(t, p.Limits())
	assert.Nil(t, p.Params(core.Take{Cost: 1}))
	assert.Zero(t, p.Options())
}

func TestPolicyParams(t *testing.T) {
	assert.Equal(t, []int64{333333, 666666, 1000000, 1, 2, 0, 2}, core.MustParse("3/1s").Params(core.Take{Cost: 1}))
	assert.Equal(t, []int64{0, 1000000, 1000000, 0, 0, 0, 2}, core.MustParse("3/1s").Params(core.Take{Cost: 0}))
	assert.Equal(t, []int64{100000, 0, 100000, 0, 0, 0, 0, 36000000, 3600000000 - 36000000, 3600000000, 0, 0, 0, 0}, core.MustParse("100/1h, 1/100ms").Params(core.Take{Cost: 1}))
	assert.Equal(t, int64(-1), core.MustParse("3/1s").Params(core.Take{Cost: 4})[1], "what never fits has a negative bound")
}

// Each line of the table of algorithms has its constructor, its script and its word.
func TestEveryAlgorithm(t *testing.T) {
	algorithms := 0
	for a := core.GCRA; !strings.HasPrefix(a.String(), "Algorithm("); a++ {
		algorithms++
		l := core.Limit{Algorithm: a, Rate: 5, Burst: 5, Period: time.Second}
		p, err := core.NewPolicy("", core.Options{}, l)
		require.NoError(t, err)
		require.Len(t, p.Shape(), 1)
		_, err = lua.Take(p.Shape())
		require.NoError(t, err)
		for _, text := range []string{p.String(), l.String(), "5/1s " + a.String()} {
			parsed, err := core.Parse(text)
			require.NoError(t, err)
			assert.Equal(t, []core.Limit{l}, parsed.Limits(), text)
		}
		_, err = core.Parse("5/1s no-algorithm")
		assert.ErrorContains(t, err, strconv.Quote(a.String()))
	}
	assert.Positive(t, algorithms)
}

func TestShorthands(t *testing.T) {
	for want, l := range map[string]core.Limit{"5/1s": core.PerSecond(5), "6/1m": core.PerMinute(6), "7/1h": core.PerHour(7), "8/1d burst 2": {Rate: 8, Burst: 2, Period: day}} {
		assert.Equal(t, want, l.String())
	}
	assert.Equal(t, "gcra", core.GCRA.String())
	assert.Equal(t, "Algorithm(200)", core.Algorithm(200).String())
	for want, period := range map[string]time.Duration{
		"1/0s": 0, "1/-1us": -time.Microsecond, "1/-1d1ns": -day - 1, "1/1us1ns": 1001, "1/366d": core.MaxPeriod,
		"1/-106751d23h47m16s854ms775us808ns": math.MinInt64,
	} {
		assert.Equal(t, want, core.Limit{Rate: 1, Period: period}.String())
	}
	for want, o := range map[string]core.Outcome{"refused": core.Refused, "admitted": core.Admitted, "at-limit": core.AtLimit, "never": core.Never, "Outcome(9)": 9} {
		assert.Equal(t, want, o.String())
	}
	assert.Equal(t, "Failure(9)", core.Failure(9).String())
}
