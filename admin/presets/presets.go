// Package presets has policies that are often wanted, each with the reasons for its numbers. They are a place to begin
// from: the numbers of a service are found by a trial.
package presets

import (
	"maps"
	"slices"

	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
)

// Preset is a policy that is often wanted.
type Preset struct {
	Name   string // such as "login", which is a good name for the policy, too
	Title  string // a line that says for what it is
	Policy policies.Policy
	Key    string // who should be counted
	Words  string // why the numbers are as they are, and what to change first
}

// All returns the presets, those first that most programs need.
func All() []Preset {
	all := slices.Clone(presets)
	for i := range all {
		all[i].Policy.Tiers = maps.Clone(all[i].Policy.Tiers)
	}
	return all
}

func text(s string) policies.Policy { return policies.Policy{Text: s} }

var presets = []Preset{
	{
		Name: "public-api", Title: "An API that anybody may call", Policy: text("20/1s, 1000/1h"),
		Key: "the address; the account, once there is one",
		Words: "The first limit keeps a loop of one client from taking the service away from others, and the " +
			"second keeps patient clients from reading everything. Both must admit, and a refusal charges " +
			"neither. Raise the second one first: it is the one that honest programs meet.",
	},
	{
		Name: "login", Title: "Attempts to sign in", Policy: text("5/1m, 30/1h; fail closed"),
		Key: "the address; beside it the account, in another policy with wider numbers",
		Words: "Five attempts are enough for a person who has forgotten which password it was, and thirty an " +
			"hour make guessing hopeless. While the counts cannot be reached, \"fail closed\" lets nobody try. " +
			"An account needs a wider limit than an address, or else anybody could lock somebody else out.",
	},
	{
		Name: "codes", Title: "Codes and links that are sent by mail or SMS",
		Policy: text("3/10m, 10/1d; fail closed"),
		Key:    "the account or number to which they are sent, not only the address that asks",
		Words: "Each message costs money and annoys whoever did not ask for it. Three in ten minutes cover a " +
			"message that is late; ten a day stop those who let a service pay for their own traffic.",
	},
	{
		Name: "search", Title: "Slow searches, where a short wait is better than an error",
		Policy: text("5/1s burst 10; wait 2s"),
		Key:    "the user; the address for those who are not signed in",
		Words: "Ten at once, because people type and a page asks for each letter. What comes too early waits for " +
			"its turn, for two seconds at most, so that a fast typist sees a slower page and no error. The " +
			"code's policy needs a \"wait\" as well.",
	},
	{
		Name: "export", Title: "Exports and reports that run for minutes",
		Policy: text("20/1d, 2 concurrent lease 10m"),
		Key:    "the account",
		Words: "What runs for long is limited by how many run at the same time, and the rate beside it stops a " +
			"client that begins and breaks off all day. The permit of a process that has crashed comes back " +
			"after the lease: it should be longer than the slowest export.",
	},
	{
		Name: "llm-tokens", Title: "The tokens of a language model", Policy: text("100000/1m debt 20000"),
		Key: "the account that pays",
		Words: "A unit is a token here, not a request: the code has a Cost that estimates, and a Settle for what " +
			"was used. How long an answer becomes is known only after it, so an account may owe 20000 tokens, " +
			"and waits until they have come back. The debt should be about the longest answer.",
	},
	{
		Name: "webhooks", Title: "Calls to somebody else's service, one by one",
		Policy: text("5/1s leaky-bucket burst 50"),
		Key:    "the receiver's host",
		Words: "Calls leave 200 ms apart whatever comes in, so that the receiver sees no burst, and up to fifty " +
			"wait in line. Take the numbers from the receiver's limit, and stay a little below it. The code's " +
			"policy needs the same algorithm.",
	},
	{
		Name: "partners", Title: "Partners with different contracts",
		Policy: policies.Policy{Text: "100/1m", Tiers: map[string]string{
			"silver": "500/1m", "gold": "2000/1m", "internal": follow.Unlimited,
		}},
		Key: "the partner, with the tier from the contract",
		Words: "The policy itself is for those who have no contract, and each tier changes nothing but the " +
			"numbers. All tiers fill their buckets in the same minute, so that a partner who changes the tier " +
			"keeps what was counted. For one partner for one week, give the key numbers with an end and leave " +
			"the tiers alone.",
	},
	{
		Name: "quota", Title: "A quota that stands in a contract or on a price list",
		Policy: text("10/1s, 10000/1mo fixed-window calendar UTC"),
		Key:    "the account",
		Words: "People who read \"10000 a month\" expect it to begin anew with the month, as a " +
			"calendar window does; name the customers' time zone. The rate beside it keeps an account from using it all " +
			"in the first minute.",
	},
	{
		Name: "signup", Title: "New accounts", Policy: text("3/1h, 10/1d; fail closed"),
		Key: "the address",
		Words: "A family or a small office makes three accounts in an hour, a program makes thousands. Large " +
			"offices and networks of mobile phones share addresses: begin with a trial, \"; shadow\" behind it, " +
			"and look at who would be refused.",
	},
	{
		Name: "upload", Title: "Uploads, counted by their size",
		Policy: text("50/1s burst 500 debt 500, 20000/1h debt 500"),
		Key:    "the user",
		Words: "A unit is a megabyte here: the code has a Cost that reads the length of the body. 500 units at " +
			"once let one large file in, the debt lets in one that is larger than what is left, and the hour " +
			"bounds the disk that a user fills.",
	},
	{
		Name: "trial", Title: "A new limit, which refuses nobody yet", Policy: text("60/1m; shadow"),
		Key: "whatever the limit shall count by",
		Words: "It counts, and says who would be refused, and refuses nobody. Leave it for a week that has a " +
			"Monday in it, look at the busiest keys, and take \"shadow\" out when those who would be refused are " +
			"those who should be.",
	},
}
