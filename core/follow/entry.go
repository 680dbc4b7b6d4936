package follow

import "fmt"

// Entry is a text of a [Set] for one policy, with what has become of it.
type Entry struct {
	// Policy is the name of the policy, and Place where the code has it.
	Policy, Place string
	// Field is the field of the Set: "Policies", "Tiers" or "Keys".
	Field string
	// Tier is the name of the tier, and Key the text of the key, that the text is for.
	Tier, Key string
	// Text is the text in the Set. It is "" in an Entry about all tiers or all keys of a policy, and in one about a tier
	// of the code.
	Text string
	// Now is the text of the policy that holds now, [Unlimited], or [Blocked].
	Now string
	// Trial reports that the policy is on trial now.
	Trial bool
	// Err is nil if the text is in use, and otherwise says why it is not.
	Err error
}

// String returns the place of the entry in its Set, such as Tiers["api"]["pro"].
func (e Entry) String() string {
	place := fmt.Sprintf("%s[%q]", e.Field, e.Policy)
	if of := e.Tier + e.Key; of != "" || e.Field != fieldPolicies && e.Text != "" {
		place += fmt.Sprintf("[%q]", of)
	}
	return place
}

const fieldPolicies = "Policies"
