package adminapi

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/observe"
)

// The paths of the API. Each path that changes something takes the query parameters why and force, and waits up to a
// second until what it has written is published.
const (
	PathApps     = "/v1/apps"                                // GET: Apps
	PathApp      = "/v1/apps/{app}"                          // PUT: Written
	PathAdopt    = "/v1/apps/{app}/adopt"                    // POST: Written
	PathPolicies = "/v1/apps/{app}/policies"                 // GET: a document, with owned what apply takes; its ETag is the revision of the app
	PathPolicy   = "/v1/apps/{app}/policies/{name}"          // GET: Held; PUT with a Policy, DELETE: Written
	PathHistory  = "/v1/apps/{app}/policies/{name}/history"  // GET: History; before, limit
	PathRollback = "/v1/apps/{app}/policies/{name}/rollback" // POST with a Rollback: Written
	PathApply    = "/v1/apps/{app}/apply"                    // POST with a document: Written; dry, prune
	PathServices = "/v1/apps/{app}/services"                 // GET: Services
	PathTop      = "/v1/top/{policy}"                        // GET: Top; prefix, minutes, limit
	PathSchema   = "/v1/schema"                              // GET: the JSON Schema of documents
)

// Policy is a [policies.Policy] as JSON.
type Policy struct {
	Text  string            `json:"text,omitempty"`
	Tiers map[string]string `json:"tiers,omitempty"`
	Keys  map[string]string `json:"keys,omitempty"`
	Apps  []string          `json:"apps,omitempty"`
}

// PolicyOf returns p as JSON has it.
func PolicyOf(p policies.Policy) Policy { return Policy(p) }

// Value returns the policy that p says.
func (p Policy) Value() policies.Policy { return policies.Policy(p) }

// Equal reports whether p and q say the same.
func (p Policy) Equal(q Policy) bool {
	return p.Text == q.Text && maps.Equal(p.Tiers, q.Tiers) && maps.Equal(p.Keys, q.Keys) &&
		slices.Equal(slices.Sorted(slices.Values(p.Apps)), slices.Sorted(slices.Values(q.Apps)))
}

// Top answers PathTop: the callers of a policy that all processes of a fleet have counted most.
type Top struct {
	Policy string `json:"policy"`
	// Since is the beginning of the first minute that counts.
	Since time.Time `json:"since"`
	// Callers has the worst first.
	Callers []Caller `json:"callers"`
	// Rest is the most that any other caller was counted.
	Rest uint64 `json:"rest"`
}

// Caller is a key, and what it was counted: at least Least and at most Most.
type Caller struct {
	Key   string `json:"key"`
	Least uint64 `json:"least"`
	Most  uint64 `json:"most"`
}

// Apps answers PathApps.
type Apps struct {
	Apps []App `json:"apps"`
}

// App is an app that the record knows.
type App struct {
	App        string `json:"app"`
	Generation int64  `json:"generation"`
	Revision   int64  `json:"revision"`
	// Published is whether the services can read the document of this version.
	Published bool `json:"published"`
	// Alarm is the reason why nothing more is published for the app until somebody has looked at it, or "".
	Alarm string `json:"alarm,omitempty"`
}

// Held is a policy as the record has it.
type Held struct {
	App  string `json:"app"`
	Name string `json:"name"`
	// Revision is that of the change that wrote it, and its ETag.
	Revision int64  `json:"revision"`
	Policy   Policy `json:"policy"`
}

// Written answers a change.
type Written struct {
	App string `json:"app"`
	// Generation and Revision are the version of the app's document now.
	Generation int64 `json:"generation"`
	Revision   int64 `json:"revision"`
	// Published is whether the services can read it. If it is false, it will be published as soon as Redis answers.
	Published bool `json:"published"`
	// Alarm is the reason why it is not published, or "".
	Alarm string `json:"alarm,omitempty"`
	// Dry is whether nothing was written, because the request asked for no more than the differences.
	Dry bool `json:"dry,omitempty"`
	// Differences are the policies that were changed, by name.
	Differences []Difference `json:"differences"`
	// CannotUse lists the rules that cannot use it, of a change that was forced.
	CannotUse []CannotUse `json:"cannotUse,omitempty"`
	// Unused are the names of policies of the change that no process has: mistakes of spelling, mostly, or policies of
	// programs that do not run yet. It is empty where it is not known what processes have.
	Unused []string `json:"unused,omitempty"`
}

// Difference is a policy before and after a change.
type Difference struct {
	Name string `json:"name"`
	// Before is nil if there was none, After if there is none any more.
	Before *Policy `json:"before,omitempty"`
	After  *Policy `json:"after,omitempty"`
	// Afresh is whether the counts begin anew for everybody, because the new numbers cannot share the old ones.
	Afresh bool `json:"afresh,omitempty"`
}

// CannotUse is a rule of a service that would not use a text.
type CannotUse struct {
	App     string `json:"app,omitempty"`
	Process string `json:"process,omitempty"`
	Policy  string `json:"policy"`
	Entry   string `json:"entry,omitempty"` // "tier pro" or "key user=7"; "" for the policy's text
	Why     string `json:"why"`
}

// History answers PathHistory, the latest version first.
type History struct {
	Versions []Past `json:"versions"`
}

// Past is a version of a policy.
type Past struct {
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
	Who      string    `json:"who"`
	Why      string    `json:"why,omitempty"`
	Action   string    `json:"action"` // "set", "delete", "apply", "rollback"
	Forced   bool      `json:"forced,omitempty"`
	Policy   *Policy   `json:"policy,omitempty"` // nil if the version is that it was deleted
}

// Rollback is the body of PathRollback.
type Rollback struct {
	// Revision is that of the version that holds again.
	Revision int64 `json:"revision"`
}

// Services answers PathServices.
type Services struct {
	App        string    `json:"app"`
	Generation int64     `json:"generation"`
	Revision   int64     `json:"revision"`
	Processes  []Process `json:"processes"`
	// Unused are the names of policies that belong to the app alone, and that no process has: as in Written.
	Unused []string `json:"unused,omitempty"`
	// Unreadable is the number of announcements that are no announcements.
	Unreadable int `json:"unreadable,omitempty"`
}

// Process is a process of an app as it described itself. All texts are its own: print them quoted.
type Process struct {
	ID         string    `json:"id"`
	Name       string    `json:"name,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	Weir       string    `json:"weir,omitempty"`
	Generation int64     `json:"generation"`
	Revision   int64     `json:"revision"`
	// Behind and Ahead compare its version with that of the app.
	Behind bool   `json:"behind,omitempty"`
	Ahead  bool   `json:"ahead,omitempty"`
	Why    string `json:"why,omitempty"`
	// Meaning is that of its document as a whole: "unread", "stale", or "".
	Meaning policies.Meaning `json:"meaning,omitempty"`
	Rules   []Rule           `json:"rules,omitempty"`
	Omitted int              `json:"omitted,omitempty"` // rules that had no room
}

// Rule is a rule of a process.
type Rule struct {
	Policy    string           `json:"policy"`
	Place     string           `json:"place,omitempty"`
	Key       string           `json:"key,omitempty"`
	OverLimit string           `json:"overLimit,omitempty"`
	Code      string           `json:"code,omitempty"` // the text of the code
	Now       string           `json:"now,omitempty"`  // the text that holds
	Meaning   policies.Meaning `json:"meaning,omitempty"`
	Why       string           `json:"why,omitempty"`
}

// TopOf returns what observe.FleetWorst has answered for the last minutes before now.
func TopOf(policy string, minutes int, callers []observe.Caller, rest uint64, now time.Time) Top {
	top := Top{Policy: policy, Since: now.Truncate(time.Minute).Add(-time.Duration(minutes) * time.Minute).UTC(), Callers: []Caller{}, Rest: rest}
	for _, c := range callers {
		top.Callers = append(top.Callers, Caller{Key: c.Key, Least: c.Count - c.Error, Most: c.Count})
	}
	return top
}
