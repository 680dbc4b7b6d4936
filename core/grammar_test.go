package core_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/algo"
	"github.com/weir-go/weir/core/storetest"
)

const day = 24 * time.Hour

func TestParse(t *testing.T) {
	limit := func(rate int64, period time.Duration, burst int64) core.Limit {
		return core.Limit{Rate: rate, Period: period, Burst: burst}
	}
	for _, c := range []struct {
		text   string
		name   string
		fail   core.Failure
		limits []core.Limit
		want   string // of String
	}{
		{"100/1m", "", core.FailLocal, []core.Limit{limit(100, time.Minute, 100)}, "100/1m"},
		{"login: 100/1m burst 20", "login", core.FailLocal, []core.Limit{limit(100, time.Minute, 20)}, "login: 100/1m burst 20"},
		{"100/1m burst 100", "", core.FailLocal, []core.Limit{limit(100, time.Minute, 100)}, "100/1m"},
		{"gcra:1/1s gcra", "gcra", core.FailLocal, []core.Limit{limit(1, time.Second, 1)}, "gcra: 1/1s"},
		{"1/1s gcra burst 2", "", core.FailLocal, []core.Limit{limit(1, time.Second, 2)}, "1/1s burst 2"},
		{"1/1s burst 2 gcra", "", core.FailLocal, []core.Limit{limit(1, time.Second, 2)}, "1/1s burst 2"},
		{"20/1s, 1000/1h; fail closed", "", core.FailClosed, []core.Limit{limit(20, time.Second, 20), limit(1000, time.Hour, 1000)}, "20/1s, 1000/1h; fail closed"},
		{"1000/1h,20/1s;fail open", "", core.FailOpen, []core.Limit{limit(20, time.Second, 20), limit(1000, time.Hour, 1000)}, "20/1s, 1000/1h; fail open"},
		{"5/1m; fail local", "", core.FailLocal, []core.Limit{limit(5, time.Minute, 5)}, "5/1m"},
		{" \t a.b_C-9 : 1 / 1s \r\n burst\t2 , 2 / 2s ; fail  open \n", "a.b_C-9", core.FailOpen, []core.Limit{limit(1, time.Second, 2), limit(2, 2*time.Second, 2)}, "a.b_C-9: 1/1s burst 2, 2/2s; fail open"},
		{"1/1h30m", "", core.FailLocal, []core.Limit{limit(1, 90*time.Minute, 1)}, "1/1h30m"},
		{"1/90m", "", core.FailLocal, []core.Limit{limit(1, 90*time.Minute, 1)}, "1/1h30m"},
		{"1/1d2h3m4s5ms6us", "", core.FailLocal, []core.Limit{limit(1, 26*time.Hour+3*time.Minute+4*time.Second+5*time.Millisecond+6*time.Microsecond, 1)}, "1/1d2h3m4s5ms6us"},
		{"1/1000us", "", core.FailLocal, []core.Limit{limit(1, time.Millisecond, 1)}, "1/1ms"},
		{"1/366d", "", core.FailLocal, []core.Limit{limit(1, core.MaxPeriod, 1)}, "1/366d"},
		{"2147483648/1ms", "", core.FailLocal, []core.Limit{limit(core.MaxRate, core.MinPeriod, core.MaxRate)}, "2147483648/1ms"},
		{"1/4s,1/3s,1/2s,1/1s", "", core.FailLocal, []core.Limit{limit(1, time.Second, 1), limit(1, 2*time.Second, 1), limit(1, 3*time.Second, 1), limit(1, 4*time.Second, 1)}, "1/1s, 1/2s, 1/3s, 1/4s"},
		{strings.Repeat("n", 64) + ":1/1s", strings.Repeat("n", 64), core.FailLocal, []core.Limit{limit(1, time.Second, 1)}, strings.Repeat("n", 64) + ": 1/1s"},
		{"wait: 1/1s", "wait", core.FailLocal, []core.Limit{limit(1, time.Second, 1)}, "wait: 1/1s"},
		{strings.Repeat(" ", 1018) + "100/1m", "", core.FailLocal, []core.Limit{limit(100, time.Minute, 100)}, "100/1m"},
	} {
		t.Run(c.text, func(t *testing.T) {
			p, err := core.Parse(c.text)
			require.NoError(t, err)
			assert.Equal(t, c.name, p.Name())
			assert.Equal(t, core.PolicyOptions{Fail: c.fail}, p.Options())
			assert.Equal(t, c.limits, p.Limits())
			assert.Equal(t, c.want, p.String())
			assert.Equal(t, strings.Repeat("g", len(c.limits)), strings.ToLower(p.Spec().Kinds()))
		})
	}
}

const (
	wantRate   = `expected a rate such as "100/1m"`
	wantSlash  = `expected "/" and a period, as in "100/1m", or "concurrent"`
	wantPeriod = `expected a period such as "10s", "1m", "1h30m" or "1d"`
	wantUnit   = `expected a unit right after the number: "d", "h", "m", "s", "ms" or "us"`
	wantOrder  = "units go from the longest to the shortest, each once"
	wantUnits  = `expected the burst's units, as in "burst 20"`
	wantSpace  = `expected a space between a word and a number, as in "burst 20"`
	wantGap    = `expected a space, ",", ";" or the end`
	wantEnd    = `expected a word such as "burst", "," and another limit, ";" and an option, or the end`
	wantName   = `expected a name of 1 to 64 letters, digits, "_", "." or "-" before ":"`
	wantOption = `expected "wait", "fail", "shadow" or "epoch"`
	wantMore   = `expected ";" and another option, or the end`
	wantEpoch  = `expected the number of the epoch, as in "epoch 1"`
	wantFail   = `expected "local", "open" or "closed"`
	wantDebt   = `expected the debt's units, as in "debt 5"`
	wantCount  = `expected the number of buckets, as in "buckets 5"`
	wantZone   = `expected a time zone, as in "calendar Europe/Berlin" or "calendar UTC"`
	wantLease  = `expected "lease"`
	wantLast   = "expected no further word"
	wantRest   = `expected a word such as "lease", "," and another limit, ";" and an option, or the end`
	permits1st = `the number of permits comes first, as in "20 concurrent lease 30s"`
	limit1st   = `a limit comes first, as in "10/1s; wait 2s"`
	noComma    = " belongs to the limit before the comma; remove the comma"
	noEquals   = `no "=" stands after a word; write `
	noPeriod   = `permits have neither a rate nor a period, as in "20 concurrent lease 30s"`
	noLength   = `a month has no fixed length; write "30d", or add "fixed-window calendar UTC"`
	noUnit     = `the calendar has the periods "1m", "1h", "1d", "7d" and "1mo"`
	ofPolicy   = ` is an option of the policy; options follow ";"`
	ofLimit    = ` belongs to a limit, before ";"`
	noZero     = "a number does not begin with 0; write "
	noMark     = `a number has no separators, as in "1000"`
	noFraction = `a number has no fraction; instead of "1.5/1s" write "3/2s", instead of "1.5h" write "1h30m"`
	longNumber = "a number has at most 18 digits"
	longPeriod = "a period is at most 366d"
	nothing    = "nothing follows it; remove it"
	lowerUnit  = "units are in lower case: "
	lowerWord  = "words are in lower case: "
)

// wantWord lists the words of a limit, those of all algorithms included.
var wantWord = func() string {
	words := []string{"burst", "debt", "buckets", "aligned", "calendar"}
	for _, k := range algo.Kinds {
		words = append(words, k.Word)
	}
	last := len(words) - 1
	return fmt.Sprintf(`expected "%s" or %q`, strings.Join(words[:last], `", "`), words[last])
}()

func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("1", 1025)
	for _, c := range []struct {
		text    string
		offset  int
		problem string
		found   string
	}{
		{"", 0, wantRate, "the end"},
		{"   ", 3, wantRate, "the end"},
		{"x: ", 3, wantRate, "the end"},
		{"x:", 2, wantRate, "the end"},
		{":1/1s", 0, wantName, `":"`},
		{" : 1/1s", 1, wantName, `":"`},
		{"a b: 1/1s", 0, wantName, `"a"`},
		{"ä: 1/1s", 0, wantName, `"ä"`},
		{"a: b: 1/1s", 3, wantRate, `"b"`},
		{"a/b: 1/1s", 0, wantName, `"a"`},
		{strings.Repeat("n", 65) + ": 1/1s", 0, wantName, `"nnnnnnnn`},
		{"1/1s; x: 2/1s", 0, wantName, `"1"`},
		{"-5/1s", 0, wantRate, `"-5"`},
		{"+5/1s", 0, wantRate, `"+"`},
		{"many/1s", 0, wantRate, `"many"`},
		{"１００/1m", 0, wantRate, `"１"`},
		{"\xff/1m", 0, wantRate, `"` + "�" + `"`},
		{"\x00", 0, wantRate, `"\x00"`},
		{"gcra 1/1s", 0, wantRate, `"gcra"`},
		{"burst 5", 0, wantRate, `"burst"`},
		{"/1s", 0, wantRate, `"/"`},
		{"100", 3, wantSlash, "the end"},
		{"1.5/1s", 1, noFraction, `"."`},
		{"1e9/1s", 1, wantSlash, `"e9"`},
		{"1_000/1h", 1, noMark, `"_"`},
		{"0x10/1s", 1, wantSlash, `"x10"`},
		{"1,000/1h", 1, noMark, `","`},
		{"1'000/1h", 1, noMark, `"'"`},
		{"1, 5/1s", 1, wantSlash, `","`},
		{"1_/1h", 1, wantSlash, `"_"`},
		{"1./1h", 1, wantSlash, `"."`},
		{"100 per 1m", 4, wantSlash, `"per"`},
		{"010/1s", 0, noZero + "10", `"010"`},
		{"00/1s", 0, noZero + "0", `"00"`},
		{"9223372036854775808/1s", 0, longNumber, `"9223372036854775808"`},
		{"1000000000000000000/1s", 0, longNumber, `"1000000000000000000"`},
		{"0000000000000000001/1s", 0, longNumber, `"0000000000000000001"`},
		{"1/1000000000000000000s", 2, longNumber, `"1000000000000000000s"`},
		{"100/", 4, wantPeriod, "the end"},
		{"100/m", 4, `a number comes before the unit, as in "1m"`, `"m"`},
		{"100/ms", 4, `a number comes before the unit, as in "1ms"`, `"ms"`},
		{"100/ d", 5, `a number comes before the unit, as in "1d"`, `"d"`},
		{"100/min", 4, `a number comes before the unit, as in "1m"`, `"min"`},
		{"100/-1s", 4, wantPeriod, `"-1s"`},
		{"100/minute", 4, `a number comes before the unit, as in "1m"`, `"minute"`},
		{"100/60", 6, wantUnit, "the end"},
		{"100/1", 5, wantUnit, "the end"},
		{"100/1ns", 5, wantUnit, `"ns"`},
		{"100/1µs", 5, wantUnit, `"µ"`},
		{"100/1M", 5, lowerUnit + `"m"`, `"M"`},
		{"5/10S", 4, lowerUnit + `"s"`, `"S"`},
		{"5/10Ms", 4, lowerUnit + `"ms"`, `"Ms"`},
		{"5/10Sec", 4, wantUnit, `"Sec"`},
		{"100/1 m", 5, wantUnit, `" "`},
		{"100/1.5h", 5, noFraction, `"."`},
		{"100/1e3s", 5, wantUnit, `"e3s"`},
		{"100/1mburst 5", 5, wantUnit, `"mburst"`},
		{"100/1w", 5, wantUnit, `"w"`},
		{"100/01m", 4, noZero, `"01m"`},
		{"100/1h01m", 6, noZero, `"01m"`},
		{"100/1m1h", 7, wantOrder, `"h"`},
		{"100/1s1s", 7, wantOrder, `"s"`},
		{"100/106752d", 4, longPeriod, `"106752d"`},
		{"100/106751d9999h", 4, longPeriod, `"106751d9999h"`},
		{"100/1m/1s", 6, wantGap, `"/"`},
		{"100/1h 30m", 7, wantEnd, `"30m"`},
		{"100/1m 20", 7, wantEnd, `"20"`},
		{"100/1m\x00", 6, wantGap, `"\x00"`},
		{"100/1m-gcra", 6, wantGap, `"-gcra"`},
		{"100/1m5", 7, wantUnit, "the end"},
		{"5/1m burst 20gcra", 13, wantSpace, `"gcra"`},
		{"5/1m burst 20-", 13, wantGap, `"-"`},
		{"5/1m burst 20☃", 13, wantGap, `"☃"`},
		{"5/10s burst20", 11, wantSpace, `"20"`},
		{"5/10s burst=20", 11, noEquals + `"burst 20"`, `"="`},
		{"5/10s burst = 20, 5/1m", 12, noEquals + `"burst 20"`, `"="`},
		{"5/10s burst=", 11, wantGap, `"="`},
		{"5/10s gcra=20", 10, wantGap, `"="`},
		{"5/1d fixed-window calendar=Europe/Berlin", 26, noEquals + `"calendar Europe/Berlin"`, `"="`},
		{"5/10s=3", 5, wantGap, `"="`},
		{"=5/10s", 0, wantRate, `"="`},
		{"5/10s gcra20", 10, wantSpace, `"20"`},
		{"5/10s gcra/1", 10, wantGap, `"/"`},
		{"5/10s bursts20", 6, wantWord, `"bursts20"`},
		{"100/1m ☃", 7, wantEnd, `"☃"`},
		{"100/1m 5/1s", 7, wantEnd, `"5"`},
		{"100/1m trailing", 7, wantWord, `"trailing"`},
		{"100/1m Burst 5", 7, lowerWord + `"burst"`, `"Burst"`},
		{"100/1m BURST 5", 7, lowerWord + `"burst"`, `"BURST"`},
		{"100/1m GCRA", 7, lowerWord + `"gcra"`, `"GCRA"`},
		{"100/1m BURSTS", 7, wantWord, `"BURSTS"`},
		{"5/10s fail closed", 6, `"fail" is an option of the policy; options follow ";"`, `"fail"`},
		{"5/10s, fail closed", 7, `"fail" is an option of the policy; options follow ";"`, `"fail"`},
		{"5/10s; burst 3", 7, `"burst" belongs to a limit, before ";"`, `"burst"`},
		{"5/10s; fail closed burst 3", 19, `"burst" belongs to a limit, before ";"`, `"burst"`},
		{"5/10s; gcra", 7, `"gcra" belongs to a limit, before ";"`, `"gcra"`},
		{"5/10s burst fail", 12, `"fail" is an option of the policy; options follow ";"`, `"fail"`},
		{"100/1m burst", 12, wantUnits, "the end"},
		{"100/1m burst x", 13, wantUnits, `"x"`},
		{"100/1m burst -1", 13, wantUnits, `"-1"`},
		{"100/1m burst 010", 13, noZero, `"010"`},
		{"100/1m burst 1e9", 14, wantSpace, `"e9"`},
		{"100/1m burst 1_000", 14, noMark, `"_"`},
		{"100/1m burst 1.5", 14, noFraction, `"."`},
		{"100/1m burst 5,000", 15, noZero + "0", `"000"`},
		{"100/1m burst 0", 7, "a burst of 0 admits nothing", `"burst"`},
		{"100/1m burst 5 burst 5", 15, `"burst" was given already`, `"burst"`},
		{"100/1m gcra" + " gcra", 12, `"gcra" was given already`, `"gcra"`},
		{"100/1m gcra burst 5 gcra", 20, `"gcra" was given already`, `"gcra"`},
		{"100/1m,", 6, nothing, `","`},
		{"100/1m , ", 7, nothing, `","`},
		{"100/1m,; fail open", 6, nothing, `","`},
		{",100/1m", 0, wantRate, `","`},
		{"100/1m,,5/1s", 6, nothing, `","`},
		{"100/1m;", 6, nothing, `";"`},
		{"100/1m; fail open;", 17, nothing, `";"`},
		{"100/1m;;fail open", 6, nothing, `";"`},
		{"100/1m; 5/1s", 8, wantOption, `"5"`},
		{"100/1m; Fail open", 8, lowerWord + `"fail"`, `"Fail"`},
		{"100/1m; open", 8, wantOption, `"open"`},
		{"100/1m; fail", 12, wantFail, "the end"},
		{"100/1m; fail never", 13, wantFail, `"never"`},
		{"100/1m; fail Open", 13, lowerWord + `"open"`, `"Open"`},
		{"100/1m; failopen", 8, wantOption, `"failopen"`},
		{"100/1m; fail=open", 12, noEquals + `"fail open"`, `"="`},
		{"5/1m burst=" + strings.Repeat("5", 1000), 10, noEquals + `"burst ` + strings.Repeat("5", 74) + `"`, `"="`},
		{"100/1m; fail open2", 17, wantSpace, `"2"`},
		{"100/1m; fail, open", 12, wantFail, `","`},
		{"100/1m; fail open; fail closed", 19, `"fail" was given already`, `"fail"`},
		{"100/1m; fail open x", 18, wantMore, `"x"`},
		{"100/1m; fail local x", 19, wantMore, `"x"`},
		{"100/1m; fail local 4", 19, `a share is 1 of a number of processes; write "local 1/4"`, `"4"`},
		{"100/1m; fail local 1", 19, `a share is 1 of a number of processes; write "local 1/2"`, `"1"`},
		{"100/1m; fail local 1/", 21, `how many processes share the limits, as in "local 1/4"`, "the end"},
		{"100/1m; fail local 2/4", 19, `a share is 1 of at most 1000000 processes, as in "local 1/4"`, `"2"`},
		{"100/1m; fail local 1/0", 19, `a share is 1 of at most 1000000 processes, as in "local 1/4"`, `"1"`},
		{"100/1m; fail local 1/1000001", 19, `a share is 1 of at most 1000000 processes, as in "local 1/4"`, `"1"`},
		{"100/1m; fail local 1/04", 21, `a number does not begin with 0; write 4`, `"04"`},
		{"100/1m; fail local 0.5", 20, "a number has no fraction; ", `"."`},
		{"100/1m; fail local 1/4 1/4", 23, wantMore, `"1"`},
		{"100/1m; fail local 1/4x", 22, wantSpace, `"x"`},
		{"100/1m; fail local1/4", 18, wantSpace, `"1"`},
		{"100/1m; fail local /4", 19, wantMore, `"/"`},
		{"100/1m; fail open 1/4", 18, `only "local" takes a share of the limits; remove it`, `"1"`},
		{"100/1m; fail closed 4", 20, `only "local" takes a share of the limits; remove it`, `"4"`},
		{"100/1m; fail open, 5/1s", 17, wantMore, `","`},
		{long, 1024, "a policy has at most 1024 bytes", `"1"`},
		{"100/1m gcra token-bucket", 12, `"gcra" was given already`, `"token-bucket"`},
		{"100/1m fixed-window sliding-log", 20, `"fixed-window" was given already`, `"sliding-log"`},
		{"100/1m tokenbucket", 7, wantWord, `"tokenbucket"`},
		{"100/1m token bucket", 7, wantWord, `"token"`},
		{"100/1m token_bucket", 7, wantWord, `"token"`},
		{"100/1m Token-Bucket", 7, lowerWord + `"token-bucket"`, `"Token-Bucket"`},
		{"100/1m FIXED-WINDOW", 7, lowerWord + `"fixed-window"`, `"FIXED-WINDOW"`},
		{"100/1m; sliding-log", 8, `"sliding-log"` + ofLimit, `"sliding-log"`},
		{"100/1m sliding-log5", 18, wantSpace, `"5"`},
		{"100/1m debt", 11, wantDebt, "the end"},
		{"100/1m debt x", 12, wantDebt, `"x"`},
		{"100/1m debt -1", 12, wantDebt, `"-1"`},
		{"100/1m debt5", 11, wantSpace, `"5"`},
		{"100/1m debt 05", 12, noZero + "5", `"05"`},
		{"100/1m debt 1.5", 13, noFraction, `"."`},
		{"100/1m debt 1 debt 1", 14, `"debt" was given already`, `"debt"`},
		{"100/1m burst debt", 13, wantUnits, `"debt"`},
		{"100/1m; debt 5", 8, `"debt"` + ofLimit, `"debt"`},
		{"100/1m DEBT 5", 7, lowerWord + `"debt"`, `"DEBT"`},
		{"100/1m sliding-window buckets", 29, wantCount, "the end"},
		{"100/1m sliding-window buckets x", 30, wantCount, `"x"`},
		{"100/1m sliding-window buckets 0", 22, "a window is divided into 1 to 60 buckets", `"buckets"`},
		{"100/1m sliding-window buckets 61", 22, "a window is divided into 1 to 60 buckets", `"buckets"`},
		{"100/1m sliding-window buckets 999999999999999999", 22, "a window is divided into 1 to 60 buckets", `"buckets"`},
		{"100/1m sliding-window buckets 5 buckets 5", 32, `"buckets" was given already`, `"buckets"`},
		{"100/1m; buckets 5", 8, `"buckets"` + ofLimit, `"buckets"`},
		{"100/1m aligned5", 14, wantSpace, `"5"`},
		{"100/1m fixed-window aligned" + " aligned", 28, `"aligned" was given already`, `"aligned"`},
		{"100/1m fixed-window aligned calendar UTC", 28, `"aligned" was given already`, `"calendar"`},
		{"100/1m fixed-window calendar UTC aligned", 33, `"calendar" was given already`, `"aligned"`},
		{"100/1m; aligned", 8, `"aligned"` + ofLimit, `"aligned"`},
		{"100/1d fixed-window calendar", 28, wantZone, "the end"},
		{"100/1d fixed-window calendar ", 29, wantZone, "the end"},
		{"100/1d fixed-window calendar, 5/1m", 28, wantZone, `","`},
		{"100/1d fixed-window calendar; fail open", 28, wantZone, `";"`},
		{`100/1d fixed-window calendar "UTC"`, 29, wantZone, `"\""`},
		{"100/1d fixed-window calendar Europe:Berlin", 0, wantName, `"100"`},
		{"100/1d fixed-window calendar Europe.Berlin", 35, wantGap, `"."`},
		{"100/1d fixed-window Calendar UTC", 20, lowerWord + `"calendar"`, `"Calendar"`},
		{"100/1d; calendar UTC", 8, `"calendar"` + ofLimit, `"calendar"`},
		{"100/2d fixed-window calendar UTC", 4, noUnit, `"2d"`},
		{"100/ 30d fixed-window calendar UTC", 5, noUnit, `"30d"`},
		{"100/1mo", 4, noLength, `"1mo"`},
		{"100/1mo fixed-window", 4, noLength, `"1mo"`},
		{"100/1mo fixed-window aligned", 4, noLength, `"1mo"`},
		{"100/1mo, 5/1m", 4, noLength, `"1mo"`},
		{"100/2mo fixed-window calendar UTC", 5, wantUnit, `"mo"`},
		{"100/1mo5d", 7, wantSpace, `"5d"`},
		{"100/1month", 5, wantUnit, `"month"`},
		{"100/mo", 4, `a number comes before the unit, as in "1m"`, `"mo"`},
		{"100/1d1mo", 7, wantUnit, `"mo"`},
		{"100/1mo_", 7, wantGap, `"_"`},
		{"concurrent 20", 0, permits1st, `"concurrent"`},
		{"concurrent", 0, permits1st, `"concurrent"`},
		{"lease 30s", 0, permits1st, `"lease"`},
		{"export: lease 30s", 8, permits1st, `"lease"`},
		{"concurrent: lease 30s", 12, permits1st, `"lease"`},
		{"5/1s, lease 30s", 6, permits1st, `"lease"`},
		{"5/1s, concurrent 20", 6, permits1st, `"concurrent"`},
		{"20 concurrent, lease 30s", 15, `"lease"` + noComma, `"lease"`},
		{"100/1m, burst 20", 8, `"burst"` + noComma, `"burst"`},
		{"x: 5/1s, 100/1m , gcra", 18, `"gcra"` + noComma, `"gcra"`},
		{"x:burst 20", 2, wantRate, `"burst"`},
		{", burst 20", 0, wantRate, `","`},
		{"20 concurrent, burst 20", 15, wantRate, `"burst"`},
		{"20 Concurrent", 3, lowerWord + `"concurrent"`, `"Concurrent"`},
		{"20concurrent", 2, wantSpace, `"concurrent"`},
		{"20concurrents", 2, wantSlash, `"concurrents"`},
		{"20", 2, wantSlash, "the end"},
		{"20 concurrents", 3, wantSlash, `"concurrents"`},
		{"5/1s, 20 lease 30s", 9, wantSlash, `"lease"`},
		{"20 lease 30s", 3, wantSlash, `"lease"`},
		{"20/1s concurrent", 6, noPeriod, `"concurrent"`},
		{"20/1s lease 3s", 6, noPeriod, `"lease"`},
		{"20 concurrent burst 5", 14, wantLease, `"burst"`},
		{"20 concurrent gcra", 14, wantLease, `"gcra"`},
		{"20 concurrent lease 3s burst 5", 23, wantLast, `"burst"`},
		{"5/1m gcra burst 5 trailing", 18, `expected "debt", "buckets", "aligned" or "calendar"`, `"trailing"`},
		{"5/1m aligned gcra debt 5 trailing", 25, `expected "burst" or "buckets"`, `"trailing"`},
		{"5/1m; wait 2s; trailing", 15, `expected "fail"`, `"trailing"`},
		{"5/1m; wait 2s; fail open; shadow; epoch 1; 5", 43, wantLast, `"5"`},
		{"20 concurrent" + " concurrent", 14, `"concurrent" was given already`, `"concurrent"`},
		{"20 concurrent/1s", 13, wantGap, `"/"`},
		{"20 concurrent lease", 19, wantPeriod, "the end"},
		{"20 concurrent lease 30", 22, wantUnit, "the end"},
		{"20 concurrent lease s", 20, `a number comes before the unit, as in "1s"`, `"s"`},
		{"20 concurrent lease 3s lease 3s", 23, `"lease" was given already`, `"lease"`},
		{"20 concurrent 30s", 14, wantRest, `"30s"`},
		{"20/1s; 5 concurrent", 7, wantOption, `"5"`},
		{"20/1s; concurrent 5", 7, `"concurrent"` + ofLimit, `"concurrent"`},
		{"1.5 concurrent", 1, noFraction, `"."`},
		{"020 concurrent", 0, noZero + "20", `"020"`},
		{"20 concurrent; lease 30s", 15, `"lease"` + ofLimit, `"lease"`},
		{"10/1s wait 2s", 6, `"wait"` + ofPolicy, `"wait"`},
		{"wait 2s", 0, limit1st, `"wait"`},
		{"login: fail open", 7, limit1st, `"fail"`},
		{"10/1s, wait 2s", 7, `"wait"` + ofPolicy, `"wait"`},
		{"20 concurrent wait 2s", 14, `"wait"` + ofPolicy, `"wait"`},
		{"10/1s; wait", 11, wantPeriod, "the end"},
		{"10/1s; wait 2", 13, wantUnit, "the end"},
		{"10/1s; wait s", 12, `a number comes before the unit, as in "1s"`, `"s"`},
		{"10/1s; wait -2s", 12, wantPeriod, `"-2s"`},
		{"10/1s; wait 1mo", 13, wantUnit, `"mo"`},
		{"10/1s; wait2s", 11, wantSpace, `"2s"`},
		{"10/1s; wait=2s", 11, noEquals + `"wait 2s"`, `"="`},
		{"10/1s; Wait 2s", 7, lowerWord + `"wait"`, `"Wait"`},
		{"10/1s; wait 2s wait 2s", 15, wantMore, `"wait"`},
		{"10/1s; wait 2s; wait 2s", 16, `"wait" was given already`, `"wait"`},
		{"10/1s; wait 2s, 5/1m", 14, wantMore, `","`},
		{"10/1s; fail wait", 12, wantFail, `"wait"`},
		{"10/1s; shadow on", 14, wantMore + `; "shadow" alone puts a policy on trial`, `"on"`},
		{"10/1s; shadow OFF", 14, lowerWord + `"off"`, `"OFF"`},
		{"10/1s; shadow off wait 1s", 18, wantMore, `"wait"`},
		{"10/1s; shadow; off", 15, `expected "wait", "fail" or "epoch"`, `"off"`},
		{"10/1s; shadow 1", 14, wantMore, `"1"`},
		{"10/1s; shadow; shadow off", 15, `"shadow" was given already`, `"shadow"`},
		{"10/1s; shadow=off", 13, noEquals + `"shadow off"`, `"="`},
		{"10/1s; epoch", 12, wantEpoch, "the end"},
		{"10/1s; epoch 1.5", 14, noFraction, `"."`},
		{"10/1s; epoch -1", 13, wantEpoch, `"-1"`},
		{"10/1s; epoch 01", 13, noZero + "1", `"01"`},
		{"10/1s; epoch 1000000000", 7, "an epoch is 0 to 999999999", `"epoch"`},
		{"10/1s; epoch=1", 12, noEquals + `"epoch 1"`, `"="`},
		{"10/1s epoch 1", 6, `"epoch"` + ofPolicy, `"epoch"`},
		{"10/1s; epoch 1; epoch 2", 16, `"epoch" was given already`, `"epoch"`},
	} {
		name := c.text
		if len(name) > 100 {
			name = name[:100]
		}
		t.Run(name, func(t *testing.T) {
			p, err := core.Parse(c.text)
			var syntax *core.SyntaxError
			require.ErrorAs(t, err, &syntax)
			assert.True(t, p.IsZero())
			assert.Equal(t, c.text, syntax.Text)
			assert.Equal(t, c.offset, syntax.Offset)
			assert.Contains(t, syntax.Problem, c.problem)
			assert.True(t, strings.HasPrefix(err.Error(), `core: policy "`), "%v", err)
			assert.Contains(t, err.Error(), fmt.Sprintf("at offset %d, found %s", c.offset, c.found))
			assert.Less(t, len(err.Error()), 1300)
		})
	}
}

// An error says what was probably meant, where that is plain.
func TestParseGuesses(t *testing.T) {
	for text, want := range map[string]string{
		"5/1m sliding":             `or "sliding-log"; write "sliding-window"`,
		"5/1m token_bucket":        `or "sliding-log"; write "token-bucket"`,
		"5/1m tokenbucket":         `or "sliding-log"; write "token-bucket"`,
		"5/1m Sliding_Log":         `or "sliding-log"; write "sliding-log"`,
		"5/1m; fail-open":          `or "epoch"; write "fail open"`,
		"5/1m; failclosed":         `or "epoch"; write "fail closed"`,
		"5/1m; no-shadow":          `or "epoch"; write "shadow off"`,
		"login 3/1m":               `expected a rate such as "100/1m"; a name ends with ":", as in "login: 3/1m"`,
		"100/1w":                   `"ms" or "us"; for weeks write "7d"`,
		"100/2w":                   `"ms" or "us"; for weeks write "14d"`,
		"20 concurrent 30s":        `or the end; write "lease 30s"`,
		"unlimited":                `expected a rate such as "100/1m"; "unlimited" is for tiers and keys`,
		"login: unlimited":         `expected a rate such as "100/1m"; "unlimited" is for tiers and keys`,
		"blocked":                  `expected a rate such as "100/1m"; "blocked" is for keys`,
		"5/1m fail-open":           `or "sliding-log"; write "; fail open"`,
		"5/1m; sliding":            `or "epoch"`,
		"a: b 3/1m":                `expected a rate such as "100/1m"`,
		"login":                    `expected a rate such as "100/1m"`,
		"2 concurrent lease 3s 5s": `or the end`,
	} {
		_, err := core.Parse(text)
		require.Error(t, err, text)
		assert.True(t, strings.HasSuffix(err.Error(), want), "%s", err)
	}
}

// What each word means, beyond the rate: see TestParse for the text around it.
func TestParseWords(t *testing.T) {
	minute := func(change func(*core.Limit)) core.Limit {
		l := core.Limit{Rate: 100, Burst: 100, Period: time.Minute}
		change(&l)
		return l
	}
	algorithm := func(a core.Algorithm) core.Limit { return minute(func(l *core.Limit) { l.Algorithm = a }) }
	calendar := func(period time.Duration, align string) core.Limit {
		return core.Limit{Algorithm: core.FixedWindow, Rate: 100, Burst: 100, Period: period, Align: align}
	}
	for _, c := range []struct {
		text  string
		limit core.Limit
		shape string
		want  string // of String, if it is not the text
	}{
		{"100/1m gcra", algorithm(core.GCRA), "g1m", "100/1m"},
		{"100/1m token-bucket", algorithm(core.TokenBucket), "b", ""},
		{"100/1m leaky-bucket", algorithm(core.LeakyBucket), "l1m", ""},
		{"100/1m fixed-window", algorithm(core.FixedWindow), "f", ""},
		{"100/1m sliding-counter", algorithm(core.SlidingCounter), "d", ""},
		{"100/1m sliding-log", algorithm(core.SlidingLog), "x", ""},
		{"100/1m sliding-window", minute(func(l *core.Limit) { l.Algorithm, l.Buckets = core.SlidingWindow, 10 }), "w10", ""},
		{"100/1m sliding-window buckets 10", minute(func(l *core.Limit) { l.Algorithm, l.Buckets = core.SlidingWindow, 10 }), "w10", "100/1m sliding-window"},
		{"100/1m buckets 60 sliding-window", minute(func(l *core.Limit) { l.Algorithm, l.Buckets = core.SlidingWindow, 60 }), "w60", "100/1m sliding-window buckets 60"},
		{"100/1m sliding-window buckets 1", minute(func(l *core.Limit) { l.Algorithm, l.Buckets = core.SlidingWindow, 1 }), "w1", ""},
		{"100/1m debt 3", minute(func(l *core.Limit) { l.Debt = 3 }), "g1m1s800ms", ""},
		{"100/1m debt 0", minute(func(*core.Limit) {}), "g1m", "100/1m"},
		{"100/1m debt 3 burst 5", minute(func(l *core.Limit) { l.Burst, l.Debt = 5, 3 }), "g4s800ms", "100/1m burst 5 debt 3"},
		{"100/1m token-bucket burst 5 debt 2147483648", minute(func(l *core.Limit) { l.Algorithm, l.Burst, l.Debt = core.TokenBucket, 5, core.MaxRate }), "b2147483648", ""},
		{"100/1m leaky-bucket burst 5", minute(func(l *core.Limit) { l.Algorithm, l.Burst = core.LeakyBucket, 5 }), "l3s", ""},
		{"100/1m fixed-window burst 100", algorithm(core.FixedWindow), "f", "100/1m fixed-window"},
		{"100/1m fixed-window aligned", calendar(time.Minute, "epoch"), "fE", ""},
		{"100/90s aligned fixed-window", calendar(90*time.Second, "epoch"), "fE", "100/1m30s fixed-window aligned"},
		{"100/1m fixed-window calendar UTC", calendar(time.Minute, "minute UTC"), "fC", ""},
		{"100/60s calendar UTC fixed-window", calendar(time.Minute, "minute UTC"), "fC", "100/1m fixed-window calendar UTC"},
		{"100/1h fixed-window calendar Asia/Kathmandu", calendar(time.Hour, "hour Asia/Kathmandu"), "fC", ""},
		{"100/1d fixed-window calendar Europe/Berlin", calendar(day, "day Europe/Berlin"), "fC", ""},
		{"100/24h fixed-window calendar Etc/GMT+12", calendar(day, "day Etc/GMT+12"), "fC", "100/1d fixed-window calendar Etc/GMT+12"},
		{"100/7d fixed-window calendar America/Argentina/Buenos_Aires", calendar(7*day, "week America/Argentina/Buenos_Aires"), "fC", ""},
		{"100/1mo fixed-window calendar America/Port-au-Prince", calendar(31*day, "month America/Port-au-Prince"), "fC", ""},
		{"100 / 1mo calendar UTC fixed-window", calendar(31*day, "month UTC"), "fC", "100/1mo fixed-window calendar UTC"},
		{"20 concurrent", core.Limit{Algorithm: core.Concurrent, Burst: 20, Lease: 30 * time.Second}, "", ""},
		{"20 concurrent lease 30s", core.Limit{Algorithm: core.Concurrent, Burst: 20, Lease: 30 * time.Second}, "", "20 concurrent"},
		{"20\tconcurrent  lease 1m30s", core.Limit{Algorithm: core.Concurrent, Burst: 20, Lease: 90 * time.Second}, "", "20 concurrent lease 1m30s"},
		{"10000 concurrent lease 1d", core.Limit{Algorithm: core.Concurrent, Burst: 10_000, Lease: 24 * time.Hour}, "", ""},
		{"1 concurrent lease 100ms", core.Limit{Algorithm: core.Concurrent, Burst: 1, Lease: 100 * time.Millisecond}, "", ""},
	} {
		t.Run(c.text, func(t *testing.T) {
			p, err := core.Parse(c.text)
			require.NoError(t, err)
			assert.Equal(t, []core.Limit{c.limit}, p.Limits())
			assert.Equal(t, c.shape, p.Spec().Shape())
			assert.Equal(t, strings.Replace(c.shape[:min(1, len(c.shape))], "l", "g", 1), p.Spec().Kinds(), "the letter alone; a queue is a meter")
			assert.Equal(t, strings.HasSuffix(c.shape, "C"), p.Spec().Calendar())
			want := c.want
			if want == "" {
				want = c.text
			}
			assert.Equal(t, want, p.String())
			assert.Equal(t, want, c.limit.String())
			again, err := core.Parse(want)
			require.NoError(t, err)
			requireSamePolicy(t, p, again)
		})
	}
}

func TestParseOptions(t *testing.T) {
	for _, c := range []struct {
		text string
		want core.PolicyOptions
		says string // of String, if it is not the text
	}{
		{"10/1s", core.PolicyOptions{}, ""},
		{"10/1s; wait 2s", core.PolicyOptions{Wait: 2 * time.Second}, ""},
		{"10/1s;wait 1500ms", core.PolicyOptions{Wait: 1500 * time.Millisecond}, "10/1s; wait 1s500ms"},
		{"10/1s; wait 1us", core.PolicyOptions{Wait: time.Microsecond}, ""},
		{"10/1s; wait 366d", core.PolicyOptions{Wait: core.MaxPeriod}, ""},
		{"10/1s; wait 0s", core.PolicyOptions{}, "10/1s"},
		{"10/1s; wait 2s; fail closed", core.PolicyOptions{Wait: 2 * time.Second, Fail: core.FailClosed}, ""},
		{"10/1s; fail open; wait 2s", core.PolicyOptions{Wait: 2 * time.Second, Fail: core.FailOpen}, "10/1s; wait 2s; fail open"},
		{"10/1s token-bucket; wait 2s", core.PolicyOptions{Wait: 2 * time.Second}, ""},
		{"10/1s, 20 concurrent; fail closed", core.PolicyOptions{Fail: core.FailClosed}, ""},
		{"10/1s; fail local 1/4", core.PolicyOptions{Processes: 4}, ""},
		{"10/1s;fail  local\t1 / 4 ;shadow", core.PolicyOptions{Processes: 4, Shadow: true}, "10/1s; fail local 1/4; shadow"},
		{"10/1s, 20 concurrent; fail local 1/1000000", core.PolicyOptions{Processes: 1_000_000}, ""},
		{"10/1s; fail local 1/1", core.PolicyOptions{Processes: 1}, ""},
		{"10/1s; shadow off", core.PolicyOptions{}, "10/1s"},
		{"10/1s;shadow  off ;epoch 7", core.PolicyOptions{Epoch: 7}, "10/1s; epoch 7"},
		{"10/1s; epoch 0", core.PolicyOptions{}, "10/1s"},
		{"10/1s, 2 concurrent; epoch 999999999; shadow; wait 1s", core.PolicyOptions{Wait: time.Second, Shadow: true, Epoch: 999_999_999}, "10/1s, 2 concurrent; wait 1s; shadow; epoch 999999999"},
	} {
		p, err := core.Parse(c.text)
		require.NoError(t, err, c.text)
		assert.Equal(t, c.want, p.Options(), c.text)
		if c.says == "" {
			c.says = c.text
		}
		assert.Equal(t, c.says, p.String())
	}
}

// Words of a later version are refused by name, wherever they may stand one day.
func TestParseRefusesLaterWords(t *testing.T) {
	for text, offset := range map[string]int{
		"100/1m; advance 100": 8, "100/1m advance 100": 7, "100/1m; fail advance": 13, "100/1m burst advance": 13, "20 concurrent advance 3": 14,
	} {
		_, err := core.Parse(text)
		var syntax *core.SyntaxError
		require.ErrorAs(t, err, &syntax, text)
		assert.Equal(t, offset, syntax.Offset, text)
		word := strings.Fields(text[offset:])[0]
		assert.Equal(t, fmt.Sprintf("this version of weir does not know the word %q yet", word), syntax.Problem)
	}
}

// Text that can be read, with numbers that cannot be enforced.
func TestParseRefusesNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"0/1s":                         "Rate is 0; give 1 to 2147483648 units",
		"2147483649/1s":                "Rate is 2147483649",
		"999999999999999999/1s":        "Rate is 999999999999999999; give 1 to 2147483648 units",
		"4294967297/1s fixed-window":   "Rate is 4294967297; give 1 to 4294967296 units",
		"1/0s":                         "Period is 0s; give 1ms to 366d",
		"1/999us":                      "Period is 999us",
		"1/367d":                       "Period is 367d; give 1ms to 366d",
		"1/366d1us":                    "Period is 366d1us",
		"1/1s burst 2147483649":        "Burst is 2147483649; give 1 to 2147483648 units, or leave it out for the rate",
		"1/366d burst 72":              "a burst of 72 at this rate takes more than 71 years to drain",
		"1/1s, 1/1s":                   "limit 2 (1/1s): the same as limit 1; leave one out",
		"1/1s, 2/1s, 1/1000ms burst 1": "limit 3 (1/1s): the same as limit 1; leave one out",
		"1/1s, 2/1s, 3/1s, 4/1s, 5/1s": "a policy has 5 limits; give 1 to 4",

		"1/1s debt 2147483649":                "Debt is 2147483649; give 0 to 2147483648 units",
		"1/366d burst 70 debt 2":              "a burst of 70 and a debt of 2 at this rate takes more than 71 years to drain",
		"1/366d burst 71; wait 366d":          "a burst of 71 and a wait of 8784h0m0s at this rate takes more than 71 years to drain",
		"5/1s fixed-window burst 6":           `Burst is 6, but "fixed-window" admits its rate and no more; leave the burst out`,
		"5/1s sliding-log burst 4":            `Burst is 4, but "sliding-log" admits its rate`,
		"5/1s sliding-window debt 1":          `Debt is 1, but "sliding-window" cannot lend; use "gcra" or "token-bucket"`,
		"5/1s leaky-bucket debt 1":            `Debt is 1, but "leaky-bucket" cannot lend`,
		"5/1s buckets 5":                      `Buckets is 5, but "gcra" has none; use "sliding-window"`,
		"5/1s aligned":                        `Align (aligned, calendar) is "epoch", but "gcra" cannot be aligned; use "fixed-window"`,
		"5/1mo calendar UTC":                  `Align (aligned, calendar) is "month UTC", but "gcra" cannot be aligned; use "fixed-window"`,
		"5/1d fixed-window calendar Mars":     `limit 1 (5/1d fixed-window calendar Mars): zone "Mars": not found; give a name such as Europe/Berlin, and`,
		"5/1d fixed-window calendar /etc":     `(5/1d fixed-window calendar /etc): zone "/etc": not found`,
		"5/1d fixed-window calendar Local":    `(5/1d fixed-window calendar Local): zone "Local": machines differ; name one, such as Europe/Berlin`,
		"1001/1s sliding-log":                 `give at most 1000, or use "sliding-window"`,
		"5/1s leaky-bucket; wait 1s":          `Wait is 1s, but "leaky-bucket" cannot reserve; use "gcra" or "token-bucket"`,
		"5/1s, 9/1m sliding-counter; wait 1s": `limit 2 (9/1m sliding-counter): Wait is 1s, but "sliding-counter" cannot reserve`,
		"5/1s; wait 366d1us":                  "Wait is 366d1us; give whole microseconds up to 366d, or 0 for none",
		"5 concurrent; wait 1s":               "Wait is 1s, but permits cannot be reserved; leave it out",
		"0 concurrent":                        "Burst (permits) is 0; give 1 to 10000",
		"10001 concurrent":                    "Burst (permits) is 10001; give 1 to 10000",
		"5 concurrent lease 99ms":             "Lease is 99ms; give 100ms to 1d",
		"5 concurrent lease 1d1us":            "Lease is 1d1us; give 100ms to 1d",
		"5 concurrent, 6 concurrent":          "limit 2 (6 concurrent): a policy has at most one limit of permits",
	} {
		_, err := core.Parse(text)
		require.ErrorContains(t, err, want, text)
		for line := range strings.SplitSeq(err.Error(), "\n") {
			assert.True(t, strings.HasPrefix(line, fmt.Sprintf("core: policy %q: ", text)), line)
			assert.Equal(t, 1, strings.Count(line, "core:"), line)
		}
		var syntax *core.SyntaxError
		assert.False(t, errors.As(err, &syntax), text)
	}
	_, err := core.Parse("1/1s, 0/367d, 1/999us")
	require.EqualError(t, err, strings.Join([]string{
		`core: policy "1/1s, 0/367d, 1/999us": limit 2 (0/367d): Rate is 0; give 1 to 2147483648 units`,
		`core: policy "1/1s, 0/367d, 1/999us": limit 2 (0/367d): Period is 367d; give 1ms to 366d`,
		`core: policy "1/1s, 0/367d, 1/999us": limit 3 (1/999us): Period is 999us; give 1ms to 366d`,
	}, "\n"))
}

func TestMustParse(t *testing.T) {
	assert.Equal(t, "100/1m", core.MustParse("100/1m").String())
	assert.Panics(t, func() { core.MustParse("100") })
}

// anyPolicy is a policy of random numbers, which are often the extremes: of the
// algorithms given, or of all with permits too.
func anyPolicy(t *rapid.T, algorithms ...core.Algorithm) core.Policy {
	if len(algorithms) == 0 {
		algorithms = append(storetest.Algorithms(), core.Concurrent)
	}
	units := rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, core.MaxRate), rapid.Just(int64(core.MaxRate)))
	period := rapid.OneOf(
		rapid.SampledFrom([]time.Duration{core.MinPeriod, time.Second, time.Minute, 90 * time.Minute, day, core.MaxPeriod}),
		rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(1000, core.MaxPeriod.Microseconds()).Draw(t, "us")) * time.Microsecond
		}),
	)
	aligns := []string{"", "epoch", "minute UTC", "hour Asia/Kathmandu", "day Europe/Berlin", "week America/Argentina/Buenos_Aires", "month Etc/GMT+12"}
	name := rapid.StringMatching(`([A-Za-z0-9_.-]{1,64})?`).Draw(t, "name")
	fail := rapid.SampledFrom([]core.Failure{core.FailLocal, core.FailOpen, core.FailClosed}).Draw(t, "fail")
	processes := 0
	if fail == core.FailLocal {
		processes = rapid.SampledFrom([]int{0, 0, 1, 2, 7, 1000}).Draw(t, "processes")
	}
	anyLimit := rapid.Custom(func(t *rapid.T) core.Limit {
		l := core.Limit{Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"), Rate: units.Draw(t, "rate"), Period: period.Draw(t, "period")}
		given := rapid.Bool().Draw(t, "given")
		switch l.Algorithm {
		case core.Concurrent:
			l = core.Limit{Algorithm: core.Concurrent, Burst: rapid.Int64Range(1, 10_000).Draw(t, "permits")}
			if given {
				l.Lease = time.Duration(rapid.Int64Range(100*time.Millisecond.Microseconds(), 24*time.Hour.Microseconds()).Draw(t, "lease")) * time.Microsecond
			}
		case core.FixedWindow:
			if l.Align = rapid.SampledFrom(aligns).Draw(t, "align"); strings.Contains(l.Align, " ") {
				l.Period = 0
			}
		case core.SlidingWindow:
			l.Buckets = rapid.IntRange(0, 60).Draw(t, "buckets")
		case core.SlidingLog:
			l.Rate = rapid.Int64Range(1, 1000).Draw(t, "rate of a log")
		case core.SlidingCounter:
		default:
			if given {
				l.Burst = units.Draw(t, "burst")
			}
			if given && l.Algorithm != core.LeakyBucket {
				l.Debt = units.Draw(t, "debt")
			}
		}
		return l
	})
	return rapid.Custom(func(t *rapid.T) core.Policy {
		o := core.PolicyOptions{Fail: fail, Processes: processes, Shadow: rapid.Bool().Draw(t, "shadow")}
		o.Epoch = rapid.SampledFrom([]int{0, 0, 1, 999_999_999}).Draw(t, "epoch")
		if rapid.Bool().Draw(t, "wait given") {
			o.Wait = period.Draw(t, "wait")
		}
		limits := rapid.SliceOfN(anyLimit, 1, core.MaxLimits).Draw(t, "limits")
		p, err := core.NewPolicy(name, o, limits...)
		if err != nil && o.Wait > 0 { // most often, one of the limits cannot reserve
			p, err = core.NewPolicy(name, core.PolicyOptions{Fail: fail, Processes: processes}, limits...)
		}
		if err != nil && processes > 1 { // the share drains too slowly
			p, err = core.NewPolicy(name, core.PolicyOptions{Fail: fail}, limits...)
		}
		if err != nil { // drains too slowly, or one limit stands twice
			return core.Policy{}
		}
		return p
	}).Filter(func(p core.Policy) bool { return !p.IsZero() }).Draw(t, "policy")
}

func requireSamePolicy(t require.TestingT, want, got core.Policy) {
	require.Equal(t, want.Name(), got.Name())
	require.Equal(t, want.Options(), got.Options())
	require.Equal(t, want.Limits(), got.Limits())
	require.Equal(t, want.Spec().Shape(), got.Spec().Shape())
	require.Equal(t, want.String(), got.String())
	require.Equal(t, want.Spec().Kinds(), got.Spec().Kinds())
	require.Equal(t, want.Spec().Calendar(), got.Spec().Calendar())
	for _, take := range []core.Take{{Cost: 1}, {Cost: 3, AtMost: true}, {Cost: 3, AtMost: true, Debt: true}, {Cost: 2, Wait: time.Second}} {
		require.Equal(t, want.Spec().TakeArgs(take, epoch), got.Spec().TakeArgs(take, epoch))
	}
}

func TestPolicyTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t)
		parsed, err := core.Parse(p.String())
		require.NoError(t, err)
		requireSamePolicy(t, p, parsed)
		text, err := p.MarshalText()
		require.NoError(t, err)
		var q core.Policy
		require.NoError(t, q.UnmarshalText(text))
		requireSamePolicy(t, p, q)
		for _, l := range p.Limits() {
			one, err := core.Parse(l.String())
			require.NoError(t, err)
			require.Equal(t, []core.Limit{l}, one.Limits())
		}
	})
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// White space may stand around separators, and must stand everywhere else: without
// it, words and numbers would run into one another.
func TestParseWhiteSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t)
		text := p.String()
		for i := range text {
			switch text[i] {
			case ' ':
				squeezed, err := core.Parse(text[:i] + text[i+1:])
				if strings.IndexByte(":,;", text[i-1]) < 0 {
					require.Error(t, err, "%s without the space at %d", text, i)
					continue
				}
				require.NoError(t, err, "%s without the space at %d", text, i)
				requireSamePolicy(t, p, squeezed)
			case ':', '/', ',', ';':
				if text[i] == '/' && !isDigit(text[i-1]) { // of a zone, which is one word
					continue
				}
				wide, err := core.Parse(" " + text[:i] + "\t" + text[i:i+1] + "\n " + text[i+1:] + "\r\n")
				require.NoError(t, err, text)
				requireSamePolicy(t, p, wide)
			}
		}
	})
}

func TestPolicyInJSON(t *testing.T) {
	type config struct {
		Default core.Policy            `json:"default"`
		Login   core.Policy            `json:"login,omitzero"`
		Routes  map[string]core.Policy `json:"routes,omitempty"`
		Maybe   *core.Policy           `json:"maybe,omitempty"`
	}
	search := core.MustParse("search: 5/1s, 100/1h; fail open")
	in := config{Default: core.MustParse("100/1m"), Routes: map[string]core.Policy{"/search": search}, Maybe: &search}
	text, err := json.Marshal(in)
	require.NoError(t, err)
	assert.JSONEq(t, `{"default":"100/1m","routes":{"/search":"search: 5/1s, 100/1h; fail open"},"maybe":"search: 5/1s, 100/1h; fail open"}`, string(text))
	var out config
	require.NoError(t, json.Unmarshal(text, &out))
	requireSamePolicy(t, in.Default, out.Default)
	requireSamePolicy(t, search, out.Routes["/search"])
	assert.True(t, out.Login.IsZero())

	zero, err := core.Policy{}.MarshalText()
	require.NoError(t, err)
	assert.Empty(t, zero)
	for _, bad := range []string{`{"default":""}`, `{"default":"x"}`, `{"default":100}`, `{"default":{"rate":100}}`} {
		kept := config{Default: search}
		require.Error(t, json.Unmarshal([]byte(bad), &kept), bad)
		assert.Equal(t, search, kept.Default, "a mistake changes nothing")
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"100/1m", "login: 100/1m burst 20", "20/1s, 1000/1h; fail closed", "10/1s; fail local 1/4", "a.b_C-9 : 1 / 1d2h3m4s5ms6us gcra ; fail open",
		"", ":", "1/", "010/1s", "1/1s;", "20 concurrent lease 30s", "9223372036854775807/9223372036854775807d", "\xff\x00", "1/1s burst 1 burst 2",
		"5/1s token-bucket burst 9 debt 3; wait 2s", "5/1m sliding-window buckets 6, 20 concurrent lease 1m", "9/1mo fixed-window calendar Europe/Berlin",
		"9/7d calendar UTC fixed-window, 3/1s fixed-window aligned", "1/1mo", "5/1s leaky-bucket, 5/1s sliding-counter, 5/1s sliding-log", "5/1d fixed-window calendar ../../etc",
		"concurrent 5", "5 concurrent lease 0s", "5/1s; wait 0s", "5/31d fixed-window calendar UTC", "5/1s buckets 0", "5/1s debt 0", "5/1d fixed-window calendar utc",
		"5/1s; shadow off; epoch 3", "5/1s; shadow off", "5/10s burst20", "5/1m burst 20gcra", "100/min", "1_000/1h", "1.5/1s", "5/10S GCRA", "5/1s, ;", "5/1s;fail closed;wait", "1/1h 30m",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := core.Parse(text)
		if err != nil {
			require.True(t, p.IsZero())
			var syntax *core.SyntaxError
			if errors.As(err, &syntax) {
				require.GreaterOrEqual(t, syntax.Offset, 0)
				require.LessOrEqual(t, syntax.Offset, len(text))
				require.NotEmpty(t, syntax.Problem)
			}
			require.NotEmpty(t, err.Error())
			return
		}
		again, err := core.Parse(p.String())
		require.NoError(t, err)
		requireSamePolicy(t, p, again)
		require.True(t, slices.IsSortedFunc(p.Limits(), func(a, b core.Limit) int {
			return cmp.Or(cmp.Compare(a.Algorithm, b.Algorithm), cmp.Compare(a.Period, b.Period))
		}))
	})
}
