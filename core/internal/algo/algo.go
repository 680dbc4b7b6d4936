// Package algo holds the arithmetic of every algorithm as pure functions on
// integers: state and time go in, a verdict and new state come out. There is no
// clock, no lock and no input or output in here. Each file stands beside the file of the
// same name in the lua directory: the same steps in the same order, with the same names
// for the words of the state and the parameters. How the two talk is the second half of
// each file.
//
// Times are microseconds since the epoch, and always positive.
package algo

// Params are the numbers of one limit. Its [Kind] says which of them an algorithm has;
// the others are zero.
type Params struct {
	Rate, Burst, Debt int64  // units
	Period            int64  // microseconds
	Wait              int64  // microseconds that a charge may be reserved ahead
	Buckets           int64  // sub-windows
	Align             string // "", [AlignEpoch], or a unit and a zone as "day Europe/Berlin"
}

// Kind is one algorithm: what stands for it elsewhere, and what it can do. The letter
// stands for the stored text: another form of text takes another letter.
type Kind struct {
	Word   string // in the grammar
	Letter byte   // in a policy's shape
	New    func(Params) (Algorithm, error)

	// What a limit of this kind may have.
	Burst, Debt, Wait, Buckets, Align bool

	// MaxRate is the largest rate where that is not the one of most kinds, which is smaller.
	MaxRate int64

	// Summary is true if the script take replies with a summary of the state, which holds
	// for the cost that it was asked for and no other.
	Summary bool
}

// Kinds is the table of algorithms, in the order of core's constants. Everything
// that is said of algorithms is read from here.
var Kinds = [...]Kind{
	{Word: "gcra", Letter: 'g', New: newGCRA, Burst: true, Debt: true, Wait: true},
	{Word: "token-bucket", Letter: 'b', New: newTokenBucket, Burst: true, Debt: true, Wait: true},
	{Word: "leaky-bucket", Letter: 'l', New: newLeakyBucket, Burst: true},
	{Word: "fixed-window", Letter: 'f', New: newFixedWindow, Align: true, MaxRate: maxWindowRate},
	{Word: "sliding-window", Letter: 'w', New: newSlidingWindow, Buckets: true, Summary: true},
	{Word: "sliding-counter", Letter: 'd', New: newSlidingCounter},
	{Word: "sliding-log", Letter: 'x', New: newSlidingLog, Summary: true},
}

// MaxReplyState is the most words that [Wire.ParseReply] may use of a state: those of a
// sliding window of 60 sub-windows, and some to spare.
const MaxReplyState = 68

// Answer explains one limit's part in a decision. Lengths are microseconds.
type Answer struct {
	Remaining int64
	Reset     int64
	More      int64    // unless refused, until more than Remaining units fit; 0 if all do, or if it is unknown
	Wait      int64    // if refused, until the same cost fits; else until the turn of a charge that has to wait
	Charged   [2]int64 // what a refund of the charge needs to know; see [Receipt]
	Refused   bool
	Never     bool
}

// Retry returns the wait before the same cost fits, if it was refused.
func (a *Answer) Retry() int64 {
	if a.Refused {
		return a.Wait
	}
	return 0
}

// Delay returns the wait for the turn, if it was not refused.
func (a *Answer) Delay() int64 { return a.Wait - a.Retry() }

// Receipt identifies a charge to one limit for a refund.
type Receipt struct {
	At      int64      // the instant of the charge
	Units   int64      // how many were charged
	Delay   int64      // how long it had to wait for its turn
	Charged [2]int64   // what Explain said of it: of its state after the charge
	Made    Arithmetic // the limit as it was then; nil if it has not changed
}

// OneOwed stands for the cost of one unit of those that Most counts if owing, where a limit
// has debt.
const OneOwed = -1

// Algorithm is one limit with its parameters built in.
type Algorithm interface {
	Arithmetic
	Wire
}

// Arithmetic is the computation of an algorithm.
//
// State is a row of integers that the methods change in place, so that a store can
// let them work on its own memory. All zero means "unused". A decision calls Load
// first; every other method takes a loaded state, so that clamping and healing
// happen in one place.
type Arithmetic interface {
	// Words is the most integers that a state has.
	Words() int
	// Apart returns a text in which numbers of the algorithm differ that must not share a state, or "" where all may
	// share one. It begins with a digit, and a letter in it follows a digit or another letter of a unit of time.
	// Numbers share a state only if none of them corrects what others may have left in it.
	Apart() string
	// Len returns how many of them are in use: all of them, except where a state's
	// first word says how long it is.
	Len(s []int64) int
	// Load brings a stored state to what the rules allow at now. It reports whether
	// the state had to be corrected: then it must be stored even by a refusal or a
	// peek.
	Load(s []int64, now int64) (healed bool)
	// Admits reports whether cost units fit, or will within wait microseconds
	// where charges can be reserved. Cost 0 always does. With [OneOwed] it reports whether
	// debt bears one unit more.
	Admits(s []int64, now, cost, wait int64) bool
	// Most returns the units that there are now: debt left aside or, if owing, all that
	// debt can still bear, even of a caller that is in debt.
	Most(s []int64, now int64, owing bool) int64
	// Charge adds cost units that Admits has admitted.
	Charge(s []int64, now, cost int64)
	// Refund gives back what units of an earlier charge still weigh: by the numbers
	// under which it was made, without what has drained since, and never more than the
	// state holds. It reports whether that is anything.
	Refund(s []int64, now, units int64, r Receipt) (changed bool)
	// Credit gives back units, at least one, without a receipt: the latest first, and as many as are in use. It reports
	// whether that is anything.
	Credit(s []int64, now, units int64) (changed bool)
	// Explain returns what the state means for the caller whose decision it was:
	// after the charge if all limits admitted, before it if one refused. cost is 0
	// where this limit fits but was not charged.
	Explain(s []int64, now, cost, wait int64, refused bool) Answer
	// Expires is the instant from which s is unused, rounded up; 0 if it is
	// unused already. It must not depend on parameters that may change while the
	// state is kept, so that a store can tell dead state from live without them.
	Expires(s []int64) int64
}

// Wire is the protocol between an algorithm and its section in the scripts of package lua: the
// arguments, the reply and the stored text. The names and the order of the arguments
// are those that the header of the Lua file declares.
type Wire interface {
	// Sections is the letter of the file in package lua that has the sections.
	Sections() byte
	// AppendTake appends the arguments of the script take. guess is the caller's idea
	// of the server's clock.
	AppendTake(b []int64, cost, wait, guess int64) []int64
	// AppendUpTo appends those of the script upto, for what Most says.
	AppendUpTo(b []int64, owing bool, guess int64) []int64
	// AppendRefund appends those of the script refund.
	AppendRefund(b []int64, units int64, r Receipt, guess int64) []int64
	// AppendCredit appends those of the script credit.
	AppendCredit(b []int64, units, guess int64) []int64
	// AppendText appends the stored form of s, which is empty for an unused one.
	AppendText(b []byte, s []int64) []byte
	// parse is [ParseText] for text that is not empty, into an s of zeros. It may leave
	// anything in s if it returns false.
	parse(s []int64, text []byte) bool
	// Reply returns how many integers the section replies with.
	Reply() int
	// ParseReply turns the section's reply into a state that Explain answers like the
	// server's, in the first MaxReplyState words at most. The first integer says
	// whether the cost fits as well; that is decoded already. s and reply may be the
	// same memory. It reports whether the section can have written the reply.
	ParseReply(s, reply []int64, now, cost int64) (ok bool)
	// Rewind takes a state that ParseReply has made back to before units were charged
	// at now. Charging them again, in parts, leads through the states of the server. It
	// reports whether the state can have that charge in it.
	Rewind(s []int64, now, units int64) (ok bool)
}
