package core_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/algo"
	"github.com/weir-go/weir/lua"
)

// Every mistake at once, and each names its field.
func TestNewPolicyTellsEveryMistake(t *testing.T) {
	good := core.PerSecond(1)
	for _, c := range []struct {
		name    string
		options core.PolicyOptions
		limits  []core.Limit
		want    []string
	}{
		{"", core.PolicyOptions{}, nil, []string{"core: a policy has 0 limits; give 1 to 4"}},
		{"", core.PolicyOptions{}, []core.Limit{good, core.PerSecond(2), core.PerSecond(3), core.PerSecond(4), core.PerSecond(5)}, []string{"core: a policy has 5 limits; give 1 to 4"}},
		{"", core.PolicyOptions{}, []core.Limit{{}}, []string{
			"core: limit 1 (0/0s): Rate is 0; give 1 to 2147483648 units",
			"core: limit 1 (0/0s): Period is 0s; give 1ms to 366d",
		}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1, Period: time.Nanosecond}}, []string{"core: limit 1 (1/1ns): Period is 1ns; give 1ms to"}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1, Period: time.Millisecond + 1}}, []string{"core: limit 1 (1/1ms1ns): Period is 1ms1ns; give whole microseconds"}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1, Period: core.MaxPeriod + 1}}, []string{"core: limit 1 (1/366d1ns): Period is 366d1ns; give 1ms to 366d"}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1, Period: -time.Second}}, []string{"core: limit 1 (1/-1s): Period is -1s"}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: -1, Period: time.Second}}, []string{"Rate is -1"}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1 << 53, Period: time.Second}}, []string{"Rate is 9007199254740992"}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: core.MaxRate + 1, Period: time.Second}}, []string{"Rate is 2147483649"}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1, Burst: -1, Period: time.Second}}, []string{"Burst is -1; give 1 to 2147483648 units, or leave it out for the rate"}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1, Burst: core.MaxRate + 1, Period: time.Second}}, []string{"Burst is 2147483649"}},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: 200, Rate: 1, Period: time.Second}}, []string{`core: limit 1 (1/1s Algorithm(200)): Algorithm is 200; give the constant for "gcra"`}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1, Burst: 72, Period: core.MaxPeriod}}, []string{"core: limit 1 (1/366d burst 72): a burst of 72 at this rate takes more than 71 years to drain; give smaller numbers or a higher rate"}},
		{"", core.PolicyOptions{Wait: -1}, []core.Limit{good}, []string{"core: Wait is -1ns; give whole microseconds up to 366d, or 0 for none"}},
		{"", core.PolicyOptions{Wait: 1001}, []core.Limit{good}, []string{"core: Wait is 1us1ns; give whole microseconds"}},
		{"", core.PolicyOptions{Wait: core.MaxPeriod + 1}, []core.Limit{good}, []string{"core: Wait is 366d1ns; give whole microseconds"}},
		{"", core.PolicyOptions{Wait: time.Second}, []core.Limit{{Algorithm: core.Concurrent, Burst: 3}}, []string{"core: Wait is 1s, but permits cannot be reserved; leave it out"}},
		{"", core.PolicyOptions{Wait: time.Second}, []core.Limit{good, {Algorithm: core.LeakyBucket, Rate: 1, Period: time.Second}}, []string{
			`core: limit 2 (1/1s leaky-bucket): Wait is 1s, but "leaky-bucket" cannot reserve; use "gcra" or "token-bucket"`,
		}},
		{"", core.PolicyOptions{Wait: core.MaxPeriod}, []core.Limit{{Rate: 1, Burst: 70, Debt: 1, Period: core.MaxPeriod}}, []string{
			"core: limit 1 (1/366d burst 70 debt 1): a burst of 70 and a debt of 1 and a wait of 8784h0m0s at this rate takes more than 71 years to drain",
		}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1, Period: time.Second, Debt: -1}}, []string{"Debt is -1; give 0 to 2147483648 units"}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1, Period: time.Second, Debt: core.MaxRate + 1}}, []string{"Debt is 2147483649; give 0 to 2147483648 units"}},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.SlidingWindow, Rate: 1, Period: time.Second, Buckets: 61}}, []string{"Buckets is 61; give 1 to 60, or 0 for 10"}},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.SlidingWindow, Rate: 1, Period: time.Second, Buckets: -1}}, []string{"Buckets is -1; give 1 to 60, or 0 for 10"}},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.FixedWindow, Rate: 1, Period: time.Second, Align: "decade UTC"}}, []string{
			`limit 1 (1/1s fixed-window calendar "decade UTC"): the Align "decade UTC" begins with no unit of the calendar; give "epoch", or one of the units minute, hour, day, week, month and a zone`,
		}},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.FixedWindow, Rate: 1, Align: "day"}}, []string{
			`limit 1 (1/0s fixed-window calendar "day"): the Align "day" has no time zone; name one, as in "day Europe/Berlin" or "day UTC"`,
		}},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.FixedWindow, Rate: 1, Period: day, Align: "day Local"}}, []string{`zone "Local": machines differ; name one, such as Europe/Berlin`}},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.FixedWindow, Rate: 1, Period: day, Align: "day Mars/Base"}}, []string{`zone "Mars/Base": not found`}},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.FixedWindow, Rate: 1, Period: time.Hour, Align: "day UTC"}}, []string{`Period is 1h, but Align is "day UTC"; give 1d, or 0`}},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.FixedWindow, Rate: 1, Align: "epoch"}}, []string{"Period is 0s; give 1ms to 366d"}},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.SlidingLog, Rate: 1000 + 1, Period: time.Second}}, []string{"1001"}},
		{"", core.PolicyOptions{}, []core.Limit{{Rate: 1, Period: time.Second, Lease: time.Second}}, []string{`Lease is 1s, but only permits have one; use "concurrent"`}},
		{
			"",
			core.PolicyOptions{Wait: time.Second},
			[]core.Limit{{Algorithm: core.SlidingCounter, Rate: 1, Burst: 2, Period: time.Second, Debt: 3, Buckets: 4, Align: "day UTC", Lease: time.Second}},
			[]string{
				`Burst is 2, but "sliding-counter" admits its rate and no more; leave the burst out`,
				`Debt is 3, but "sliding-counter" cannot lend; use "gcra" or "token-bucket"`,
				`Buckets is 4, but "sliding-counter" has none; use "sliding-window"`,
				`Align (aligned, calendar) is "day UTC", but "sliding-counter" cannot be aligned; use "fixed-window"`,
				"Lease is 1s, but only permits have one",
				`Wait is 1s, but "sliding-counter" cannot reserve; use "gcra" or "token-bucket"`,
			},
		},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.Concurrent}}, []string{"core: limit 1 (0 concurrent): Burst (permits) is 0; give 1 to 10000"}},
		{
			"",
			core.PolicyOptions{},
			[]core.Limit{{Algorithm: core.Concurrent, Rate: 1, Burst: 10_000 + 1, Period: time.Second, Lease: time.Millisecond}, {Algorithm: core.Concurrent, Burst: 1, Lease: time.Second + 1}},
			[]string{
				"core: limit 1 (10001 concurrent lease 1ms): Burst (permits) is 10001; give 1 to 10000",
				"core: limit 1 (10001 concurrent lease 1ms): permits have only Burst and Lease; leave out Rate, Period, Debt, Buckets and Align",
				"core: limit 1 (10001 concurrent lease 1ms): Lease is 1ms; give 100ms to 1d",
				"core: limit 2 (1 concurrent lease 1s1ns): Lease is 1s1ns; give whole microseconds",
			},
		},
		{"", core.PolicyOptions{}, []core.Limit{{Algorithm: core.Concurrent, Burst: 2}, good, {Algorithm: core.Concurrent, Burst: 1}}, []string{"a policy has at most one limit of permits"}},
		{
			"a b",
			core.PolicyOptions{Fail: 3},
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
		p, err := core.NewPolicy(name, core.PolicyOptions{}, core.PerSecond(1))
		require.NoError(t, err, name)
		assert.Equal(t, name, p.Name())
	}
	p := core.MustParse("login: 5/1m; fail closed")
	for _, name := range []string{" ", "a b", "a:b", "a;b", "{a}", "ä", "a\n", "a\x00", strings.Repeat("n", 65), "a/b", `a"b`} {
		_, err := core.NewPolicy(name, core.PolicyOptions{}, core.PerSecond(1))
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
	p, err := core.NewPolicy("", core.PolicyOptions{}, limits...)
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
		assert.Equal(t, "g1s/1000000-20-20-0-g2sg1s/1000000-30-30-0-g1d", p.Spec().Shape())
	}
}

func TestZeroPolicy(t *testing.T) {
	var p core.Policy
	assert.True(t, p.IsZero())
	assert.Empty(t, p.Name())
	assert.Empty(t, p.String())
	assert.Empty(t, p.Spec().Shape())
	assert.Nil(t, p.Limits())
	assert.Nil(t, p.Spec().TakeArgs(core.Take{Cost: 1}, 0))
	assert.Zero(t, p.Options())
	assert.Empty(t, p.Spec().Kinds())
	assert.False(t, p.Spec().Calendar())
	assert.Nil(t, p.Spec().RefundArgs(core.Refund{Receipt: core.Result{At: epoch}, Units: 1}, epoch))
}

func TestPolicyParams(t *testing.T) {
	assert.Equal(t, []int64{333333, 666666, 1000000, 1, 2, 0, 2}, core.MustParse("3/1s").Spec().TakeArgs(core.Take{Cost: 1}, 0))
	assert.Equal(t, []int64{0, 1000000, 1000000, 0, 0, 0, 2}, core.MustParse("3/1s").Spec().TakeArgs(core.Take{Cost: 0}, 0))
	assert.Equal(t, []int64{100000, 0, 100000, 36000000, 3600000000 - 36000000, 3600000000}, core.MustParse("100/1h, 1/100ms").Spec().TakeArgs(core.Take{Cost: 1}, 0))
	assert.Equal(t, int64(-1), core.MustParse("3/1s").Spec().TakeArgs(core.Take{Cost: 4}, 0)[1], "what never fits has a negative bound")
	waits := core.MustParse("10/1s; wait 2s")
	assert.Equal(t, []int64{100000, 900000, 3000000}, waits.Spec().TakeArgs(core.Take{Cost: 1}, 0))
	assert.Equal(t, []int64{100000, 1400000, 3000000}, waits.Spec().TakeArgs(core.Take{Cost: 1, Wait: 500 * time.Millisecond}, 0))
	assert.Equal(t, []int64{100000, 2900000, 3000000}, waits.Spec().TakeArgs(core.Take{Cost: 1, Wait: time.Hour}, 0), "no further than the policy's wait")
	assert.Equal(t, []int64{100000, 1000000, 3000000, 7}, waits.Spec().TakeArgs(core.Take{Cost: 7, AtMost: true}, 0), "one unit at a time, and how many at most")
	res, _, _ := waits.Spec().Step(nil, core.Take{Policy: waits, Key: "k", Cost: 3, Now: epoch})
	params := waits.Spec().RefundArgs(core.Refund{Receipt: res, Units: 3}, 0)
	assert.Equal(t, int64(300000), params[0], "what three units weigh")
	assert.Equal(t, epoch+300000, params[1], "the state that the charge led to")
	assert.Equal(t, res.At, params[len(params)-1])
	assert.Equal(t, []int64{100000, 1000000, 3000000, 0}, waits.Spec().TakeArgs(core.Take{AtMost: true}, 0), "none at most looks for one unit")
	owes := core.MustParse("10/1s debt 5; wait 2s")
	assert.Equal(t, []int64{100000, 1000000, 3500000, 7}, owes.Spec().TakeArgs(core.Take{Cost: 7, AtMost: true}, 0), "debt left aside")
	assert.Equal(t, []int64{100000, 1500000, 3500000, 7}, owes.Spec().TakeArgs(core.Take{Cost: 7, AtMost: true, Debt: true}, 0), "debt included")
}

// Limits stand in the order of algorithm and period, permits last, whatever the order
// in which they were written: it is the order of Result.Each and of what is stored.
func TestPolicyOrderOfAlgorithms(t *testing.T) {
	const want = "9/1m, 9/1h, 5/1s leaky-bucket, 8/1d fixed-window, 7/1s sliding-window, 3/1s sliding-counter, 4/1h sliding-log, 2 concurrent"
	limits := core.MustParse(strings.Join(strings.Split(want, ", ")[:4], ",")).Limits()
	rest := core.MustParse(strings.Join(strings.Split(want, ", ")[4:], ",")).Limits()
	for i, shuffled := range [][]core.Limit{
		{limits[3], limits[0], limits[2], limits[1]},
		{limits[1], limits[2], limits[3], limits[0]},
		{rest[3], rest[2], rest[1], rest[0]},
		{rest[2], rest[0], rest[3], rest[1]},
	} {
		p, err := core.NewPolicy("", core.PolicyOptions{}, shuffled...)
		require.NoError(t, err)
		if i < 2 {
			assert.Equal(t, limits, p.Limits())
			assert.Equal(t, "g1mg1hl1sf", p.Spec().Shape())
			assert.Equal(t, "Gggf", p.Spec().Kinds())
		} else {
			assert.Equal(t, rest, p.Limits())
			assert.Equal(t, "w10dx", p.Spec().Shape(), "permits are kept apart")
			assert.Equal(t, "wdx", p.Spec().Kinds())
		}
	}
	same := core.MustParse("1/1s burst 2, 1/1s debt 1, 1/1s burst 2 debt 1, 2/1s burst 1")
	assert.Equal(t, "1/1s debt 1, 1/1s burst 2, 1/1s burst 2 debt 1, 2/1s burst 1", same.String())
}

// A shape names the state: neither a number that may be changed nor permits are in it, but what divides and aligns a
// window is, what a meter must have in common with another one to share a state, and what tells limits apart that are
// alike.
func TestPolicyShapes(t *testing.T) {
	for want, texts := range map[string][]string{
		"b":  {"1/1s token-bucket", "100/1d token-bucket burst 7; fail closed"},
		"b3": {"1/1s token-bucket debt 3", "3/1d token-bucket; wait 1s"},
		// Of meters also the time of a full bucket with its debt, and how far ahead may be reserved.
		"g1s":               {"1/1s", "5/1s, 20 concurrent; fail closed", "100/10s burst 10", "100/10s burst 7 debt 3; fail local 1/4"},
		"g2s333ms333us_1_3": {"3/1s burst 7", "6/1s burst 14", "9/1s burst 20 debt 1"},
		"g2h24m+1s":         {"100/1d burst 7 debt 3; wait 1s"},
		"l1s":               {"1/1s leaky-bucket", "9/3s leaky-bucket burst 3"},
		"f":                 {"1/1s fixed-window", "9/1h fixed-window"},
		"fE":                {"1/1s fixed-window aligned", "9/1h fixed-window aligned"},
		"fC":                {"1/1h fixed-window calendar UTC", "9/1mo fixed-window calendar Europe/Berlin"},
		"w10":               {"1/1s sliding-window", "9/1h sliding-window buckets 10"},
		"w5":                {"1/1s sliding-window buckets 5"},
		"d":                 {"1/1s sliding-counter", "9/1h sliding-counter"},
		"x":                 {"1/1s sliding-log", "1000/1h sliding-log"},
		"":                  {"5 concurrent", "6 concurrent lease 1s", "6 concurrent; epoch 3"},
		"g1s@3":             {"1/1s; epoch 3", "5/1s, 20 concurrent; epoch 3", "7/1s; fail local 1/4; shadow; epoch 3"},
		"g1sf@999999999":    {"1/1s, 5/1m fixed-window; epoch 999999999"},
		// Those that are alike have different shapes.
		"g1sg1m":                    {"1/1s, 5/1m", "7/1m, 3/1s"},
		"g1s+5usg1m12s+5us":         {"1/1s, 5/1m burst 6, 9 concurrent; wait 5us"}, // of each
		"g1sg1ml1s":                 {"1/1s, 5/1m, 1/1s leaky-bucket"},
		"f/1000000f/60000000":       {"1/1s fixed-window, 5/1m fixed-window"},
		"g6s/1000000g6s/60000000":   {"1/1s burst 6, 10/1m burst 1"},
		"fCf":                       {"5/1h fixed-window calendar UTC, 7/2h fixed-window"},
		"w10/1000000w5w10/60000000": {"1/1s sliding-window, 2/1s sliding-window buckets 5, 5/1m sliding-window"},
		"g1s/1000000-1-1-0-g1s/1000000-5-4-1-g1m": {"1/1s, 5/1s burst 4 debt 1, 7/1m"},
		"fC/86400000000-5-5-0-day-America/New_YorkfC/86400000000-5-5-0-day-UTC": {
			"5/1d fixed-window calendar America/New_York, 5/1d fixed-window calendar UTC",
		},
	} {
		for _, text := range texts {
			assert.Equal(t, want, core.MustParse(text).Spec().Shape(), text)
			share := core.MustParse(text).Local()
			assert.Equal(t, strings.Contains(want, "@"), strings.Contains(share.Spec().Shape(), "@"), "a process's share is of the epoch too: %s", text)
		}
	}
	for want, text := range map[string]string{"p": "5 concurrent, 1/1s", "p@3": "5 concurrent; epoch 3; fail local 1/2"} {
		assert.Equal(t, want, core.MustParse(text).Spec().PermitShape())
		assert.Equal(t, want, core.MustParse(text).Local().Spec().PermitShape())
	}
	assert.Empty(t, core.Spec{}.PermitShape())
}

// Each line of the table of algorithms has its constructor, its scripts and its words,
// and what it cannot do is refused.
func TestEveryAlgorithm(t *testing.T) {
	seen := map[string]bool{}
	for i, k := range algo.Kinds {
		a := core.Algorithm(i)
		assert.Equal(t, k.Word, a.String())
		assert.False(t, seen[k.Word] || seen[string(k.Letter)], "%v", k.Word)
		seen[k.Word], seen[string(k.Letter)] = true, true
		l := core.Limit{Algorithm: a, Rate: 5, Burst: 5, Period: time.Second}
		if k.Buckets {
			l.Buckets = 10
		}
		p, err := core.NewPolicy("", core.PolicyOptions{}, l)
		require.NoError(t, err)
		assert.Equal(t, string(k.Letter), p.Spec().Shape()[:1])
		for _, script := range []func(string) (string, error){lua.Take, lua.Takes, lua.UpTo, lua.Refund} {
			_, err = script(p.Spec().Kinds())
			require.NoError(t, err)
		}
		for _, text := range []string{p.String(), l.String(), "5/1s " + k.Word} {
			parsed, err := core.Parse(text)
			require.NoError(t, err)
			assert.Equal(t, []core.Limit{l}, parsed.Limits(), text)
		}
		_, err = core.Parse("5/1s no-algorithm")
		require.ErrorContains(t, err, strconv.Quote(k.Word))

		for word, can := range map[string]bool{" burst 6": k.Burst, " debt 1": k.Debt, " buckets 3": k.Buckets, " aligned": k.Align, "; wait 1s": k.Wait} {
			_, err = core.Parse("5/1s " + k.Word + word)
			assert.Equal(t, can, err == nil, "%s%s: %v", k.Word, word, err)
		}
	}
	// A constant for each, in the order of the table, and named like its word; Concurrent has a store of its own.
	constants := algorithmConstants(t)
	require.Len(t, constants, len(algo.Kinds)+1)
	assert.Equal(t, "Concurrent", constants[len(algo.Kinds)])
	for i, k := range algo.Kinds {
		assert.Equal(t, strings.ReplaceAll(k.Word, "-", ""), strings.ToLower(constants[i]))
	}
	assert.Equal(t, "concurrent", core.Concurrent.String())
}

// algorithmConstants are the names of the constants that the source declares from 0 on.
func algorithmConstants(t *testing.T) (names []string) {
	file, err := parser.ParseFile(token.NewFileSet(), "limit.go", nil, 0)
	require.NoError(t, err)
	for _, d := range file.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		first, ok := block.Specs[0].(*ast.ValueSpec)
		if !ok || len(first.Values) != 1 || fmt.Sprint(first.Type, first.Values[0]) != "Algorithm iota" {
			continue
		}
		for _, spec := range block.Specs {
			constant, ok := spec.(*ast.ValueSpec)
			require.True(t, ok)
			names = append(names, constant.Names[0].Name)
		}
	}
	return names
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
	// What is no alignment is shown as it was given, for errors.
	for align, want := range map[string]string{
		"": "", "epoch": " aligned", "day UTC": " calendar UTC", "day Mars": " calendar Mars", "Epoch": ` calendar "Epoch"`, "day": ` calendar "day"`,
		"day ": ` calendar "day "`, "decade UTC": ` calendar "decade UTC"`, "month": ` calendar "month"`, " UTC": ` calendar " UTC"`,
		strings.Repeat("x", 81): ` calendar "` + strings.Repeat("x", 80) + `"`,
	} {
		assert.Equal(t, "20/1d fixed-window"+want, core.Limit{Algorithm: core.FixedWindow, Rate: 20, Period: day, Align: align}.String())
	}
	assert.Equal(t, "20/1mo fixed-window calendar UTC", core.Limit{Algorithm: core.FixedWindow, Rate: 20, Align: "month UTC"}.String())
	for want, o := range map[string]core.Outcome{"refused": core.Refused, "admitted": core.Admitted, "at-limit": core.AtLimit, "never": core.Never, "Outcome(9)": 9} {
		assert.Equal(t, want, o.String())
	}
	assert.Equal(t, "Failure(9)", core.Failure(9).String())
}
