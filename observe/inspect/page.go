package inspect

import "time"

// page is the content of the page, as its JSON has it. Every list is bounded; what has no place in one is counted in Left.
type page struct {
	// Program is the host and the process id.
	Program string    `json:"program"`
	At      time.Time `json:"at"`
	Start   time.Time `json:"start"`
	// Well reports that there is no cause among Causes that makes decisions wrong or late.
	Well     bool      `json:"well"`
	Causes   []cause   `json:"causes"`
	Deadline seconds   `json:"deadline,omitempty"` // of decisions of a store, in seconds
	Servers  []server  `json:"servers"`
	Memory   []memory  `json:"memory"`
	Lanes    []lane    `json:"background"`
	Waiting  int       `json:"waiting"` // for their turn
	Permits  int       `json:"permits"` // that this process holds
	Owed     owed      `json:"owed"`
	Policies []policy  `json:"policies"` // those first that refuse most
	Guards   []rules   `json:"guards"`
	Worst    []worst   `json:"worst"`
	Refusals []refusal `json:"refusals"` // the latest first
	Left     left      `json:"left"`
}

// seconds is a duration as JSON has it.
type seconds float64

func inSeconds(d time.Duration) seconds { return seconds(d.Seconds()) }

func (s seconds) duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// cause is something to look at.
type cause struct {
	// Kind is "store", "slow", "busy", "background", "policies", "key", "refusals", "forgotten" or "sharing".
	Kind string `json:"kind"`
	// Grave reports that decisions are wrong or late, or soon will be.
	Grave bool      `json:"grave"`
	What  string    `json:"what"`
	Since time.Time `json:"since,omitzero"`
	More  []string  `json:"more,omitempty"`
	// See is a page of the documentation.
	See string `json:"see,omitempty"`
}

// server is a server of a store.
type server struct {
	Addr string `json:"addr"`
	// State is "answers", "slow", "fails", "not asked" or "unknown".
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	Last  time.Time `json:"last,omitzero"` // the latest failure
	Class string    `json:"class,omitempty"`

	Decisions traffic `json:"decisions"`
	Behind    traffic `json:"behind"`
	// The decisions that fail words have made in place of the server, in the outage of now.
	Local  int64 `json:"local"`
	Open   int64 `json:"open"`
	Closed int64 `json:"closed"`
}

// traffic is the round trips to a server, those with decisions or those that no request waits for.
type traffic struct {
	BreakerOpen  bool      `json:"breakerOpen"`
	BreakerSince time.Time `json:"breakerSince,omitzero"`
	BreakerClass string    `json:"breakerClass,omitempty"`
	Waiting      int       `json:"waiting"`
	Out          int       `json:"out"`
	RoundTrip    seconds   `json:"roundTrip"`
	Flights      uint64    `json:"flights"`
	Calls        uint64    `json:"calls"`
	Merged       uint64    `json:"merged"`
	Failures     uint64    `json:"failures"`
}

// memory is an in-process store.
type memory struct {
	Keys             int    `json:"keys"`
	MaxKeys          int    `json:"maxKeys"`
	Displaced        uint64 `json:"displaced"`
	DisplacedAtLimit uint64 `json:"displacedAtLimit"`
}

// lane is work that no request waits for.
type lane struct {
	Name    string  `json:"name"`
	Pending int     `json:"pending"`
	Out     int     `json:"out"`
	Lost    uint64  `json:"lost"`
	Oldest  seconds `json:"oldest"`
}

// owed counts units that were admitted without the store, for which the store has not been charged.
type owed struct {
	Keys  int    `json:"keys"`
	Units int64  `json:"units"`
	Lost  uint64 `json:"lost"`
}

// rate is a number of decisions a second, of the last 10 seconds, 5 minutes and hour.
type rate struct {
	TenSeconds  float64 `json:"tenSeconds"`
	FiveMinutes float64 `json:"fiveMinutes"`
	OneHour     float64 `json:"oneHour"`
}

// policy has the decisions of a policy.
type policy struct {
	Name     string `json:"name"`
	Allowed  rate   `json:"allowed"`
	Refused  rate   `json:"refused"`
	Unstored rate   `json:"unstored"`
	// RefusedSum and Sum are the refusals and all decisions since the start. Refusals on trial count as well.
	RefusedSum uint64 `json:"refusedSum"`
	Sum        uint64 `json:"sum"`
	// Trial reports that it is a trial, which refuses nothing.
	Trial bool `json:"trial"`
	// By has the part of the refusals of each rule.
	By []share `json:"by"`
	// From has the part of the decisions of what has decided.
	From []share `json:"from"`
	// P99 is the time that 99 of 100 decisions of a store do not exceed, since the start.
	P99 seconds `json:"p99,omitempty"`
	// Waiting and Permits are those of now.
	Waiting int `json:"waiting,omitempty"`
	Permits int `json:"permits,omitempty"`
}

// share is a part of a number.
type share struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// rules are those of a guard.
type rules struct {
	Revision string `json:"revision,omitempty"`
	// Lag is the reason for which the revision may not be the latest, since LagsSince; "" if it is.
	Lag       string    `json:"lag,omitempty"`
	LagsSince time.Time `json:"lagsSince,omitzero"`
	Rules     []rule    `json:"rules"`
}

// rule is a rule of a guard, with its numbers of now.
type rule struct {
	Route     string `json:"route"`
	Place     string `json:"place"`
	Policy    string `json:"policy"`
	Key       string `json:"key"`
	OverLimit string `json:"overLimit"`
	Trial     bool   `json:"trial"`
	Tiers     int    `json:"tiers"`
	Keys      int    `json:"keys"`
	Circuits  int    `json:"circuits,omitempty"`
}

// worst has the worst callers of a policy.
type worst struct {
	Policy  string   `json:"policy"`
	Callers []caller `json:"callers"`
	// Rest is the most that any other caller was refused, where it is known: in the whole fleet.
	Rest uint64 `json:"rest,omitempty"`
}

// caller is a key and how often it was refused since Since: at least Least and at most Most.
type caller struct {
	Key   string    `json:"key"`
	Least uint64    `json:"least"`
	Most  uint64    `json:"most"`
	Since time.Time `json:"since"`
}

// refusal is a request that was refused.
type refusal struct {
	At         time.Time `json:"at"`
	Policy     string    `json:"policy"`
	Rule       string    `json:"rule"`
	Route      string    `json:"route"`
	Tier       string    `json:"tier,omitempty"`
	Key        string    `json:"key"`
	Outcome    string    `json:"outcome"`
	From       string    `json:"from"`
	Trial      bool      `json:"trial,omitempty"`
	RetryAfter seconds   `json:"retryAfter"`
	hash       string    // of the key, whole
}

// left counts what has no place on the page.
type left struct {
	Policies int `json:"policies,omitempty"`
	Rules    int `json:"rules,omitempty"`
	Servers  int `json:"servers,omitempty"`
}
