package adminapi

import (
	"time"

	"github.com/weir-go/weir/core/enforce"
)

// OfKey is the body of PathLook and PathReset: a key, which is counted, such as "user=7".
type OfKey struct {
	Key string `json:"key"`
}

// Keys answers PathKeys.
type Keys struct {
	// Numbers are those of the policy's keys that have some of their own.
	Numbers map[string]string `json:"numbers"`
	// Temporary are those of them that end by themselves.
	Temporary []Temporarily `json:"temporary,omitempty"`
	// Busiest and Refused are the keys that use most and that are refused most, as far as services tell.
	Busiest []Caller `json:"busiest,omitempty"`
	Refused []Caller `json:"refused,omitempty"`
	// Why is the reason why there are no busiest keys, or "".
	Why string `json:"why,omitempty"`
}

// KeyNumbers is the body of PathKeys.
type KeyNumbers struct {
	Key string `json:"key"`
	// Text are the numbers of the key, "blocked", "unlimited", or "" for those of the others.
	Text string `json:"text,omitempty"`
	// Until is the time at which the former numbers hold again. Only an owner may leave it out.
	Until time.Time `json:"until,omitzero"`
}

// Looks answers PathLook.
type Looks struct {
	App   string `json:"app"`
	Key   string `json:"key"`
	Looks []Look `json:"looks"`
}

// Look is a key as one policy counts it, by one store.
type Look struct {
	Policy string `json:"policy"`
	// Revision is that of the policy if it belongs to the app, or 0.
	Revision int64 `json:"revision,omitempty"`
	// Place is where the code has the rule, such as "GET /orders".
	Place string `json:"place,omitempty"`
	// Prefix is that of the store.
	Prefix string `json:"prefix,omitempty"`
	// Numbers are those that the key has of its own, "" if it has those of the others.
	Numbers string `json:"numbers,omitempty"`
	// Temporary is the end of these numbers, if they end by themselves.
	Temporary *Temporarily `json:"temporary,omitempty"`
	// Explanation says what a request would get now. It is nil where nobody can look.
	Explanation *enforce.Explanation `json:"explanation,omitempty"`
	// Words is the explanation as text.
	Words string `json:"words,omitempty"`
	// Why is the reason why nobody can look, or "".
	Why string `json:"why,omitempty"`
}

// AskPreview is the body of PathPreview.
type AskPreview struct {
	Policy Policy `json:"policy"`
	// Keys are looked at beside the busiest.
	Keys []string `json:"keys,omitempty" maxItems:"50"`
}

// Preview answers PathPreview: what a change would do. Nothing was changed.
type Preview struct {
	// Difference is nil if the policy says that already.
	Difference *Difference `json:"difference,omitempty"`
	// Words say what holds after, and Kept what becomes of the counts.
	Words []string `json:"words"`
	Kept  []string `json:"kept,omitempty"`
	// Keys are the busiest, and those that were asked for.
	Keys []KeyPreview `json:"keys"`
	// Refused is the number of these keys that would be refused now, and were not before.
	Refused int `json:"refused"`
	// CannotUse lists the rules of processes that could not use it.
	CannotUse []CannotUse `json:"cannotUse,omitempty"`
	// Unused is whether no process has a policy of this name.
	Unused bool `json:"unused,omitempty"`
	// Why is the reason why no keys could be looked at, or "".
	Why string `json:"why,omitempty"`
}

// KeyPreview is a key before and after a change.
type KeyPreview struct {
	Key    string   `json:"key"`
	Prefix string   `json:"prefix,omitempty"`
	Before KeyState `json:"before"`
	After  KeyState `json:"after"`
	// Why is the reason why it is not known, or "".
	Why string `json:"why,omitempty"`
}

// KeyState is what the next request of a key would get.
type KeyState struct {
	Allowed   bool  `json:"allowed"`
	Limit     int64 `json:"limit"`
	Remaining int64 `json:"remaining"`
	// RetryAfter is the time until a request is admitted, and ResetAfter until the key is as if unused: nanoseconds.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	ResetAfter time.Duration `json:"resetAfter,omitempty"`
}
