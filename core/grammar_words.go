package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// place is a place in the text of a policy.
type place uint8

const (
	atFirst      place = iota // where the first limit begins
	afterRate                 // where another limit begins, behind one of a rate
	afterPermits              // the same, behind one of permits
	ofNumber                  // behind the number with which a limit begins
	ofRate                    // behind a rate and its period
	ofPermits                 // behind "concurrent"
	ofPolicy                  // behind ";"
	ofFail                    // behind "fail"
	ofShadow                  // behind "shadow"
	ofLater                   // nowhere yet: a later version may have it
)

// word is a word of the grammar.
type word struct {
	text    string
	place   place               // where it belongs
	sets    string              // what it sets, if others set it too: one of them may be given
	follows operand             // what follows it
	such    string              // what follows it, in the words of an error
	refuse  func(n int64) bool  // reports a number that cannot follow, if NewPolicy would not notice
	refused string              // what is wrong with that number
	set     func(*draft, value) // notes the word in the policy
}

// operand is the kind of value that follows a word.
type operand uint8

const (
	nothing operand = iota
	aNumber
	aPeriod
	aZone
	aFailure // one of the words of ofFail
	aShare   // 1 of a number, which may be left out
	anOff    // "off", which may be left out: 1 if it is there
)

// value is the value that followed a word.
type value struct {
	n    int64 // a number, or a period in nanoseconds
	zone string
}

// draft is the part of a policy that has been read: its options, and the limit that is being read.
type draft struct {
	options PolicyOptions
	limit   Limit
	zone    string // of the limit's calendar
}

// words are the words of the grammar, in the order in which errors list them. The parser
// knows no others. To a Limit, 0 means that none was given.
var words = slices.Concat([]word{
	{text: concurrentWord, place: ofNumber, set: func(d *draft, _ value) { d.limit.Algorithm = Concurrent }},
	{
		text: "lease", place: ofPermits, follows: aPeriod, set: func(d *draft, v value) { d.limit.Lease = time.Duration(v.n) },
		refuse: func(n int64) bool { return n == 0 }, refused: "a lease is at least " + periodText(minLease),
	},
	{
		text: "burst", place: ofRate, follows: aNumber, set: func(d *draft, v value) { d.limit.Burst = v.n }, such: `the burst's units, as in "burst 20"`,
		refuse: func(n int64) bool { return n == 0 }, refused: `a burst of 0 admits nothing; leave "burst" out for a burst of the rate`,
	},
	{text: "debt", place: ofRate, follows: aNumber, set: func(d *draft, v value) { d.limit.Debt = v.n }, such: `the debt's units, as in "debt 5"`},
	{
		text: "buckets", place: ofRate, follows: aNumber, set: func(d *draft, v value) { d.limit.Buckets = int(v.n) }, such: `the number of buckets, as in "buckets 5"`,
		refuse: func(n int64) bool { return n < 1 || n > maxBuckets }, refused: fmt.Sprintf("a window is divided into 1 to %d buckets", maxBuckets),
	},
	{text: "aligned", place: ofRate, sets: "beginning", set: func(d *draft, _ value) { d.limit.Align = algo.AlignEpoch }},
	{
		text: "calendar", place: ofRate, sets: "beginning", follows: aZone, set: func(d *draft, v value) { d.zone = v.zone },
		such: `a time zone, as in "calendar Europe/Berlin" or "calendar UTC"`,
	},
}, algorithmRows(), []word{
	{text: "wait", place: ofPolicy, follows: aPeriod, set: func(d *draft, v value) { d.options.Wait = time.Duration(v.n) }},
	{text: "fail", place: ofPolicy, follows: aFailure, set: func(*draft, value) {}},
	{text: FailLocal.String(), place: ofFail, follows: aShare, set: func(d *draft, v value) { d.options.Fail, d.options.Processes = FailLocal, int(v.n) }},
	failureRow(FailOpen), failureRow(FailClosed),
	{text: "shadow", place: ofPolicy, follows: anOff, set: func(d *draft, v value) { d.options.Shadow = v.n == 0 }},
	{text: offWord, place: ofShadow, set: func(*draft, value) {}},
	{
		text: "epoch", place: ofPolicy, follows: aNumber, set: func(d *draft, v value) { d.options.Epoch = int(v.n) }, such: `the number of the epoch, as in "epoch 1"`,
		refuse: func(n int64) bool { return n > maxEpoch }, refused: fmt.Sprintf("an epoch is 0 to %d", maxEpoch),
	},

	{text: "advance", place: ofLater},
})

const offWord = "off"

func algorithmRows() []word {
	ws := make([]word, len(algo.Kinds))
	for i, k := range algo.Kinds {
		ws[i] = word{text: k.Word, place: ofRate, sets: "algorithm", set: func(d *draft, _ value) { d.limit.Algorithm = Algorithm(i) }}
	}
	return ws
}

func failureRow(f Failure) word {
	return word{text: f.String(), place: ofFail, set: func(d *draft, _ value) { d.options.Fail = f }}
}

// misplaced has the mistake of a word, %q, by the place where it belongs and the place where it stands. For places
// that it has not, the error names what was expected.
var misplaced = map[place]map[place]string{
	ofNumber: {
		atFirst: permitsFirst, afterRate: permitsFirst, afterPermits: permitsFirst, ofPermits: "%q was given already",
		ofRate: noRate, ofPolicy: ofALimit,
	},
	ofPermits: {atFirst: permitsFirst, afterRate: permitsFirst, afterPermits: noComma, ofRate: noRate, ofPolicy: ofALimit},
	ofRate:    {afterRate: noComma, ofPolicy: ofALimit},
	ofPolicy: {
		atFirst:   `a limit comes first, as in "10/1s; wait 2s"`,
		afterRate: isOption, afterPermits: isOption, ofNumber: isOption, ofRate: isOption, ofPermits: isOption,
	},
	ofLater: {
		atFirst: isLater, afterRate: isLater, afterPermits: isLater, ofNumber: isLater, ofRate: isLater, ofPermits: isLater, ofPolicy: isLater,
	},
}

const (
	permitsFirst = `the number of permits comes first, as in "20 concurrent lease 30s"`
	noRate       = `permits have neither a rate nor a period, as in "20 concurrent lease 30s"`
	noComma      = `%q belongs to the limit before the comma; remove the comma`
	ofALimit     = `%q belongs to a limit, before ";"`
	isOption     = `%q is an option of the policy; options follow ";"`
	isLater      = "this version of weir does not know the word %q yet"
)

// guesses has what was probably meant by a text that is no word, without "-" and "_", by the place where it stands.
var guesses = func() map[place]map[string]string {
	meant := map[place]map[string]string{
		atFirst:  {"unlimited": `"unlimited" is for tiers and keys`, "blocked": `"blocked" is for keys`},
		ofRate:   {"sliding": "sliding-window", "fixed": "fixed-window", "token": "token-bucket", "leaky": "leaky-bucket"},
		ofPolicy: {"failopen": "fail open", "failclosed": "fail closed", "faillocal": "fail local", "noshadow": "shadow off"},
	}
	for _, k := range algo.Kinds {
		meant[ofRate][strings.ReplaceAll(k.Word, "-", "")] = k.Word
	}
	for text, option := range meant[ofPolicy] {
		meant[ofRate][text] = "; " + option
	}
	for _, at := range []place{ofRate, ofPolicy} {
		for text, word := range meant[at] {
			meant[at][text] = fmt.Sprintf("write %q", word)
		}
	}
	meant[ofPolicy]["on"] = `"shadow" alone puts a policy on trial`
	return meant
}()

// wordNamed returns the word of that text, or nil.
func wordNamed(text string) *word {
	for i := range words {
		if words[i].text == text {
			return &words[i]
		}
	}
	return nil
}

// excludes reports whether only one of w and v may be given.
func (w *word) excludes(v *word) bool { return w == v || w.sets != "" && w.sets == v.sets }

// wordsLeft lists the words of a place that may still be given, for an error.
func wordsLeft(at place, given []*word) string {
	var left []string
	for i := range words {
		if w := &words[i]; w.place == at && !slices.ContainsFunc(given, w.excludes) {
			left = append(left, w.text)
		}
	}
	if left == nil {
		return "no further word"
	}
	return oneOf(left)
}
