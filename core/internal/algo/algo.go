// Package algo holds the arithmetic of every algorithm as pure functions on
// integers: state and time go in, a verdict and new state come out. There is no
// clock, no lock and no input or output in here, and each file is named like its
// twin in the lua directory.
//
// Times are microseconds since the epoch, and always positive.
package algo

// Params are the numbers of one limit. Which of them an algorithm has, its [Kind]
// tells; the others are zero.
type Params struct {
	Rate, Burst, Debt int64  // units
	Period            int64  // microseconds
	Ahead             int64  // microseconds that a charge may be reserved ahead
	Buckets           int64  // sub-windows
	Align             string // "", [AlignEpoch], or a unit and a zone as "day Europe/Berlin"
}

// Kind is one algorithm: what stands for it elsewhere, and what it can do.
type Kind struct {
	Word   string // in the grammar
	Letter byte   // in a policy's shape, and in package lua
	New    func(Params) (Algorithm, error)

	// What a limit of this kind may have.
	Burst, Debt, Ahead, Buckets, Align bool
}

// Kinds is the table of algorithms, in the order of core's constants. Everything
// that is said of algorithms is read from here.
var Kinds = [...]Kind{
	{Word: "gcra", Letter: 'g', New: newGCRA, Burst: true, Debt: true, Ahead: true},
	{Word: "token-bucket", Letter: 't', New: newTokenBucket, Burst: true, Debt: true, Ahead: true},
	{Word: "leaky-bucket", Letter: 'l', New: newLeakyBucket, Burst: true},
	{Word: "fixed-window", Letter: 'f', New: newFixedWindow, Align: true},
	{Word: "sliding-window", Letter: 's', New: newSlidingWindow, Buckets: true},
	{Word: "sliding-counter", Letter: 'c', New: newSlidingCounter},
	{Word: "sliding-log", Letter: 'x', New: newSlidingLog},
}

// MaxReplyState is the most words that [Algorithm.ParseReply] may use of a state: those of
// a sliding window of 60 sub-windows, and some to spare.
const MaxReplyState = 68

// Answer explains one limit's part in a decision. Lengths are microseconds.
type Answer struct {
	Remaining int64
	Retry     int64
	Reset     int64
	Delay     int64    // until the turn of a charge that has to wait
	Charged   [2]int64 // what a refund of the charge needs to know; see [Receipt]
	Refused   bool
	Never     bool
}

// Receipt is what a refund needs to know of a charge to one limit.
type Receipt struct {
	At      int64    // the instant of the charge
	Units   int64    // how many were charged
	Delay   int64    // how long it had to wait for its turn
	Charged [2]int64 // what Explain said of it: of its state after the charge
}

// Algorithm is the arithmetic of one limit with its parameters built in.
//
// State is a row of integers that the methods change in place, so that a store can
// let them work on its own memory. All zero means "unused". A decision calls Load
// first; every other method takes a loaded state, so that clamping and healing
// happen in one place.
type Algorithm interface {
	// Words is the most integers that a state has.
	Words() int
	// Len is how many of them are in use: all of them, except where a state's
	// first word tells how long it is.
	Len(s []int64) int
	// Load brings a stored state to what the rules allow at now. It answers true
	// if the state had to be corrected: then it must be stored even by a refusal
	// or a peek.
	Load(s []int64, now int64) (healed bool)
	// Admits tells whether cost units fit, or will within ahead microseconds
	// where charges can be reserved. Cost 0 always does.
	Admits(s []int64, now, cost, ahead int64) bool
	// Most is how many units there are now, debt left aside.
	Most(s []int64, now int64) int64
	// Charge adds cost units that Admits has admitted.
	Charge(s []int64, now, cost int64)
	// Refund gives back what units of an earlier charge still weigh. It answers
	// false if that is nothing.
	Refund(s []int64, now, units int64, r Receipt) (changed bool)
	// Explain tells what the state means for the caller whose decision it was:
	// after the charge if all limits admitted, before it if one refused. cost is 0
	// where this limit fits but was not charged.
	Explain(s []int64, now, cost, ahead int64, refused bool) Answer
	// Expires is the instant from which s is unused, rounded up; 0 if it is
	// unused already. It must not depend on the parameters, so that a store can
	// tell dead state from live without them.
	Expires(s []int64) int64

	// AppendParams appends the arguments of the algorithm's section in the script
	// take. guess is the caller's idea of the server's clock.
	AppendParams(b []int64, cost, ahead, guess int64) []int64
	// AppendMost appends those in the script upto.
	AppendMost(b []int64, guess int64) []int64
	// AppendRefund appends those in the script refund.
	AppendRefund(b []int64, units int64, r Receipt, guess int64) []int64
	// Reply is how many integers the section replies with.
	Reply() int
	// ParseReply turns the section's reply into a state that Explain answers like
	// the server's, in the first MaxReplyState words at most. The first integer tells whether the cost fits as well; that
	// is decoded already. s and reply may be the same memory. The answer is false
	// for a reply that the section cannot have written.
	ParseReply(s, reply []int64, now, cost int64) (ok bool)
	// AppendText appends the stored form of s, which is empty for an unused one.
	AppendText(b []byte, s []int64) []byte
	// ParseText reads what AppendText wrote. It answers false, and leaves s
	// unused, for anything else.
	ParseText(s []int64, text []byte) bool
}
