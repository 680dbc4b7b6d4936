package core

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// MaxLimits is how many limits one policy may have.
const MaxLimits = 4

// MaxRate is the largest rate and burst of a limit, in units.
const MaxRate = 1 << 31

// The shortest and the longest period of a limit.
const (
	MinPeriod = time.Millisecond
	MaxPeriod = 366 * 24 * time.Hour
)

// Algorithm is the way in which a limit counts.
type Algorithm uint8

// GCRA, the zero Algorithm, is the generic cell rate algorithm: smooth, with one
// instant of state. In any time d it admits at most burst + d*rate/period units.
// It is a leaky bucket used as a meter, and the same as a token bucket that is
// refilled without steps (ITU-T I.371, 1993; in Redis since brandur's
// redis-cell).
const GCRA Algorithm = 0

// kinds is the table of algorithms: the word of the grammar, and the letter that
// stands for it in a policy's shape, in algo.New and in package lua. Everything
// that is said of algorithms is read from here.
var kinds = [...]struct {
	word   string
	letter byte
}{
	GCRA: {"gcra", 'g'},
}

// algorithmWords are the words of the table.
func algorithmWords() []string {
	words := make([]string, len(kinds))
	for a, k := range kinds {
		words[a] = k.word
	}
	return words
}

// algorithmOf is the algorithm that a word of the grammar names.
func algorithmOf(word string) (a Algorithm, ok bool) {
	for a, k := range kinds {
		if k.word == word {
			return Algorithm(a), true
		}
	}
	return 0, false
}

// String returns the algorithm's word in the grammar of [Parse].
func (a Algorithm) String() string {
	if int(a) < len(kinds) {
		return kinds[a].word
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// Limit is one bound on how often: Rate units per Period, Burst at once. It is
// data, without behaviour; a [Policy] holds what may be asked of a [Store].
type Limit struct {
	// Algorithm says how to count. Zero is GCRA.
	Algorithm Algorithm
	// Rate is the number of units per Period that are admitted in the long run,
	// from 1 to MaxRate.
	Rate int64
	// Burst is the whole capacity: how many units are admitted at once from
	// idle, from 1 to MaxRate. It may be above or below Rate. Zero means Rate.
	Burst int64
	// Period is the time that Rate refers to, in whole microseconds, from
	// MinPeriod to MaxPeriod.
	Period time.Duration
}

// PerSecond is rate units per second, all of them at once if need be.
func PerSecond(rate int64) Limit { return Limit{Rate: rate, Period: time.Second} }

// PerMinute is rate units per minute, all of them at once if need be.
func PerMinute(rate int64) Limit { return Limit{Rate: rate, Period: time.Minute} }

// PerHour is rate units per hour, all of them at once if need be.
func PerHour(rate int64) Limit { return Limit{Rate: rate, Period: time.Hour} }

// String returns the limit as [Parse] reads it, such as "100/1m burst 20".
func (l Limit) String() string { return string(l.appendText(nil)) }

// prepare fills in what was left out and checks the rest: every mistake at once.
func (l Limit) prepare() (full Limit, a algo.Algorithm, mistakes []error) {
	wrong := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if int(l.Algorithm) >= len(kinds) {
		wrong("Algorithm is %d; give the constant for %s", l.Algorithm, oneOf(algorithmWords()))
	}
	if l.Rate < 1 || l.Rate > MaxRate {
		wrong("Rate is %d; give 1 to %d units", l.Rate, int64(MaxRate))
	}
	if l.Burst < 0 || l.Burst > MaxRate {
		wrong("Burst is %d; give 1 to %d units, or 0 for the rate", l.Burst, int64(MaxRate))
	}
	switch {
	case l.Period < MinPeriod || l.Period > MaxPeriod:
		wrong("Period is %s; give %s to %s", periodText(l.Period), periodText(MinPeriod), periodText(MaxPeriod))
	case l.Period%time.Microsecond != 0:
		wrong("Period is %s; give whole microseconds", periodText(l.Period))
	}
	if l.Burst == 0 {
		l.Burst = l.Rate
	}
	if mistakes != nil {
		return l, nil, mistakes
	}
	a, err := algo.New(kinds[l.Algorithm].letter, algo.Params{
		Rate: l.Rate, Burst: l.Burst, Period: l.Period.Microseconds(),
	})
	if err != nil {
		return l, nil, []error{err}
	}
	return l, a, nil
}
