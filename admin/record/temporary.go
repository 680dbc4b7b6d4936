package record

import (
	"time"

	"github.com/weir-go/weir/core/policies"
)

// Temporary is a change of one part of a policy that ends by itself: then the part becomes again what it was before.
type Temporary struct {
	App, Name string
	Key       string // the key whose numbers it changes, or "" for the text of the policy
	Former    string // the text that holds again at the end; "" is none
	Text      string // the text that holds until then; "" is none
	Began     time.Time
	Ends      time.Time
	// Operator is whether all that was written here since Began was written by operators, who have a week.
	Operator   bool
	Person, By string // the id and the name of the last author
	Reason     string
	// Why is the reason why it could not be ended at its time, or "". It is tried again each minute.
	Why string
}

// part returns the text of a policy, or that of a key of it: "" is no key.
func part(p *policies.Policy, key string) string {
	switch {
	case p == nil:
		return ""
	case key == "":
		return p.Text
	}
	return p.Keys[key]
}

// Beneath returns a policy as it is when all of the temporary changes have ended.
func Beneath(p *policies.Policy, all []Temporary) *policies.Policy {
	for _, t := range all {
		p = patchOfPart(t.Key, t.Former).On(p)
	}
	return p
}

// over returns a policy as it is while all of the temporary changes hold.
func over(p *policies.Policy, all []Temporary) *policies.Policy {
	for _, t := range all {
		p = patchOfPart(t.Key, t.Text).On(p)
	}
	return p
}
