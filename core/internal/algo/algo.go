// Package algo holds the arithmetic of every algorithm as pure functions on
// integers: state and time go in, a verdict and new state come out. There is no
// clock, no lock and no input or output in here, and each file is named like its
// twin in the lua directory.
//
// Times are microseconds since the epoch, and always positive.
package algo

import "fmt"

// Params are the numbers of one limit.
type Params struct {
	Rate, Burst int64 // units
	Period      int64 // microseconds
}

// New is the table of algorithms: the letter that stands for one in a shape, and
// what prepares its arithmetic.
func New(letter byte, p Params) (Algorithm, error) {
	switch letter {
	case 'g':
		return newGCRA(p)
	default:
		return nil, fmt.Errorf("algo: no algorithm has the letter %q", letter)
	}
}

// Answer explains one limit's part in a decision. Lengths are microseconds.
type Answer struct {
	Remaining int64
	Retry     int64
	Reset     int64
	Refused   bool
	Never     bool
}

// Algorithm is the arithmetic of one limit with its parameters built in.
//
// State is a row of Words integers that the methods change in place, so that a
// store can let them work on its own memory. All zero means "unused". A decision
// calls Load first; every other method takes a loaded state, so that clamping
// and healing happen in one place.
type Algorithm interface {
	// Words is how many integers a state has.
	Words() int
	// Load brings a stored state to what the rules allow at now. It answers true
	// if the state had to be corrected: then it must be stored even by a refusal
	// or a peek.
	Load(s []int64, now int64) (healed bool)
	// Admits tells whether cost units fit. Cost 0 always does.
	Admits(s []int64, now, cost int64) bool
	// Charge adds cost units that Admits has admitted.
	Charge(s []int64, now, cost int64)
	// Refund gives back what units, charged at the instant at, still weigh. It
	// answers false if that is nothing.
	Refund(s []int64, now, at, units int64) (changed bool)
	// Explain tells what the state means for the caller whose decision it was:
	// after the charge if all limits admitted, before it if one refused.
	Explain(s []int64, now, cost int64, refused bool) Answer
	// Expires is the instant from which s is unused, rounded up; 0 if it is
	// unused already. It must not depend on the parameters, so that a store can
	// tell dead state from live without them.
	Expires(s []int64) int64

	// AppendParams appends the arguments of the algorithm's script section.
	AppendParams(b []int64, cost int64) []int64
	// ParseReply turns the section's reply into a state, in place. It answers
	// false in ok for a reply that the section cannot have written.
	ParseReply(s []int64, now int64) (fits, ok bool)
	// AppendText appends the stored form of s, which is empty for an unused one.
	AppendText(b []byte, s []int64) []byte
	// ParseText reads what AppendText wrote. It answers false, and leaves s
	// unused, for anything else.
	ParseText(s []int64, text []byte) bool
}
