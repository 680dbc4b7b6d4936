package adminapi

import (
	"time"

	"github.com/weir-go/weir/observe"
)

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

// TopOf returns what observe.FleetWorst has answered for the last minutes before now.
func TopOf(policy string, minutes int, callers []observe.Caller, rest uint64, now time.Time) Top {
	since := now.Truncate(time.Minute).Add(-time.Duration(minutes) * time.Minute).UTC()
	top := Top{Policy: policy, Since: since, Callers: []Caller{}, Rest: rest}
	for _, c := range callers {
		top.Callers = append(top.Callers, Caller{Key: c.Key, Least: c.Count - c.Error, Most: c.Count})
	}
	return top
}
