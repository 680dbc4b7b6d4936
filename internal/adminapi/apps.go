package adminapi

import (
	"time"

	"github.com/weir-go/weir/core/policies"
)

// Apps answers PathApps.
type Apps struct {
	Apps []App `json:"apps"`
}

// App is an app that the record knows.
type App struct {
	App        string `json:"app"`
	Generation int64  `json:"generation"`
	Revision   int64  `json:"revision"`
	// Published reports whether the services can read the document of this version.
	Published bool `json:"published"`
	// Alarm is the reason why nothing more is published for the app until somebody has looked at it, or "".
	Alarm string `json:"alarm,omitempty"`
}

// Settings are those of an app, and the body of PathApp.
type Settings struct {
	// Title is a name for people.
	Title string `json:"title,omitempty"`
	// FourEyes makes each change a proposal that another owner approves.
	FourEyes bool `json:"fourEyes,omitempty"`
	// KeptBy is the place of the files from which "weir apply" writes the policies of the app. Nobody else may change
	// them then. It is "" if there are none.
	KeptBy string `json:"keptBy,omitempty"`
	// KeptByToken is the number of the token that writes them, whose changes need no approval.
	KeptByToken int64 `json:"keptByToken,omitempty"`
	// Counts are the prefixes of the stores in which processes of the app count. An admin writes them, so that nobody
	// looks at the counts of another app.
	Counts []string `json:"counts,omitempty"`
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
