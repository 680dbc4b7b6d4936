package policies

// Meaning says in one word what a policy of a process obeys. It is the word of an announcement; see [RuleState].
type Meaning string

// The meanings, those that take precedence first.
const (
	// Unread means that there is a document that the process cannot read: it is too large or malformed, of a later
	// format, or of the same version as another one. The last one that it could read holds as a whole.
	Unread Meaning = "unread"
	// Stale means that the process has had no answer for a minute. The last document holds; if there never was one, the
	// code does.
	Stale Meaning = "stale"
	// Unusable means that the entry of the policy has a mistake or differs from the code in more than it may. The
	// numbers from before hold; after a restart those of the code.
	Unusable Meaning = "unusable"
	// Trial means that the fleet's entry is in use, and that the policy is on trial: it refuses nothing.
	Trial Meaning = "trial"
	// Fleet means that the fleet's entry is in use.
	Fleet Meaning = "fleet"
	// Code means that the fleet says nothing of the policy, or has deleted what it said.
	Code Meaning = "code"
)

// known reports whether m is one of the meanings.
func (m Meaning) known() bool {
	switch m {
	case Unread, Stale, Unusable, Trial, Fleet, Code:
		return true
	default:
		return false
	}
}
