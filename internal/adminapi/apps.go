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
	// Published is whether the services can read the document of this version.
	Published bool `json:"published"`
	// Alarm is the reason why nothing more is published for the app until somebody has looked at it, or "".
	Alarm string `json:"alarm,omitempty"`
	// Role is that of the person who asks: "viewer", "operator", "owner" or "admin".
	Role     string   `json:"role,omitempty"`
	Settings Settings `json:"settings,omitzero"`
	// Health is what the processes of the app say. It is nil where they have not been read.
	Health *Health `json:"health,omitempty"`
}

// Settings are those of an app, and the body of PathApp.
type Settings struct {
	// Title is a name for people.
	Title string `json:"title,omitempty"`
	// FourEyes makes each change a proposal that another owner approves.
	FourEyes bool `json:"fourEyes,omitempty"`
	// KeptBy says where the files are from which "weir apply" writes the policies of the app. Nobody else may change
	// them then. It is "" if there are none.
	KeptBy string `json:"keptBy,omitempty"`
}

// Health is what the processes of an app say, in numbers.
type Health struct {
	// Read is the time at which their announcements were read.
	Read      time.Time `json:"read"`
	Processes int       `json:"processes"`
	// Behind, Unusable and Stale are the numbers of processes that have an earlier document, that cannot use a text of
	// it, and that cannot read it any more.
	Behind   int `json:"behind,omitempty"`
	Unusable int `json:"unusable,omitempty"`
	Stale    int `json:"stale,omitempty"`
	// Trials is the number of policies that only count.
	Trials int `json:"trials,omitempty"`
	// Admitted and Refused are the numbers of requests in the last whole minute.
	Admitted uint64 `json:"admitted,omitempty"`
	Refused  uint64 `json:"refused,omitempty"`
}

// AppView answers PathApp: an app on one page.
type AppView struct {
	App
	Policies []PolicyView `json:"policies"`
	// Code are the limits that only the code has.
	Code []CodeLimit `json:"code,omitempty"`
	// Proposals is the number of those that wait for somebody.
	Proposals int `json:"proposals,omitempty"`
	// Emergencies are the emergency changes at which nobody has looked yet.
	Emergencies []AuditRow `json:"emergencies,omitempty"`
}

// PolicyView is a policy of an app, its own or one that another app lends it.
type PolicyView struct {
	Held
	// Owner is the app to which it belongs, "*" for one of all apps.
	Owner string `json:"owner"`
	// Words are those of Checked.
	Words []string `json:"words,omitempty"`
	// Origins are the numbers of rules of processes by what they obey: "fleet", "code", "trial", "unusable".
	Origins map[string]int `json:"origins,omitempty"`
	// Why is the reason why a process cannot use it, or "".
	Why string `json:"why,omitempty"`
	// Changed is the last change of it.
	Changed *Past `json:"changed,omitempty"`
	// Usage is its last hour, by the minute.
	Usage []UsagePoint `json:"usage,omitempty"`
}

// CodeLimit is a limit of the code of a service, which the record does not have.
type CodeLimit struct {
	Name string `json:"name"`
	// Texts are those of the processes: several while a new version is rolled out.
	Texts  []string `json:"texts"`
	Places []string `json:"places,omitempty"` // such as "GET /orders"
	// Processes is the number of those that have it.
	Processes int `json:"processes"`
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

// Search is the body of PathSearch: a key stands in no URL.
type Search struct {
	Text string `json:"text"`
}

// Found answers PathSearch.
type Found struct {
	Apps     []string `json:"apps,omitempty"`
	Policies []OfApp  `json:"policies,omitempty"`
	// Key is the text if it has the form of a key, such as "user=7", and KeyApps are the apps in which it may be looked at.
	Key     string   `json:"key,omitempty"`
	KeyApps []string `json:"keyApps,omitempty"`
}

// OfApp is a policy of an app.
type OfApp struct {
	App  string `json:"app"`
	Name string `json:"name"`
}
