package record

import (
	"errors"
	"fmt"
	"time"
)

// NotFoundError reports that the record has no such app or policy.
type NotFoundError struct {
	App, Name string
	Revision  int64  // of the version that was looked for, or 0
	Owner     string // the app that lends a policy of this name, or ""
	Proposal  int64  // the number of the proposal that was looked for, or 0
}

func (e *NotFoundError) Error() string {
	switch {
	case e.Proposal != 0:
		return fmt.Sprintf("there is no proposal %d; old ones are forgotten, and the audit has them", e.Proposal)
	case e.Name == "" && e.Revision != 0:
		return fmt.Sprintf("app %q had no policies at revision %d; its history lists its revisions", e.App, e.Revision)
	case e.Name == "":
		return fmt.Sprintf("there is no app %q that you may see; an admin can add it, or give you a right on it", e.App)
	case e.Revision != 0:
		return fmt.Sprintf("policy %q of app %q has no version %d; its history lists those that it has", e.Name, e.App, e.Revision)
	case e.Owner != "":
		return fmt.Sprintf("policy %q belongs to app %q, and app %q uses it; change it there", e.Name, e.Owner, e.App)
	}
	return fmt.Sprintf("app %q has no policy %q in the record, so that the code's holds", e.App, e.Name)
}

// StaleError reports that a change expected another revision than the one that holds.
type StaleError struct {
	Name              string // of the policy, or "" for the app
	Expected, Current int64  // 0: none
	Who               string
	At                time.Time
}

func (e *StaleError) Error() string {
	switch {
	case e.Name == "" && e.Current == 0:
		return fmt.Sprintf("revision %d of the app was expected, which the record does not know; is this the right server?", e.Expected)
	case e.Name == "" && e.Expected == 0:
		return fmt.Sprintf("the app has settings already, of revision %d; read it and try again", e.Current)
	case e.Expected == 0:
		return fmt.Sprintf("there is a policy %q already, of revision %d; read it and change it", e.Name, e.Current)
	case e.Current == 0:
		return fmt.Sprintf("there is no policy %q any more, of which revision %d was expected; create it again if it is wanted",
			e.Name, e.Expected)
	}
	by := ""
	if e.Who != "" {
		by = fmt.Sprintf(", changed by %s at %s", e.Who, e.At.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("revision %d is stale: %d is current%s; read it and try again", e.Expected, e.Current, by)
}

// TakenError reports that an app would use two policies of one name.
type TakenError struct{ App, Name, Owner string }

func (e *TakenError) Error() string {
	if e.Owner == e.App {
		return fmt.Sprintf("app %q has a policy %q of its own; delete that one first, or leave the app out", e.App, e.Name)
	}
	return fmt.Sprintf("app %q uses the policy %q of app %q already; take it out of that policy's apps first",
		e.App, e.Name, e.Owner)
}

// ReviewError reports that a change needs the approval of another person: propose it.
type ReviewError struct{ Apps []string } // that ask for it

func (e *ReviewError) Error() string {
	return fmt.Sprintf("changes of app %q need the approval of another owner; propose it", e.Apps[0])
}

// KeptError reports that the policies of an app come from files.
type KeptError struct{ App, By string }

func (e *KeptError) Error() string {
	return fmt.Sprintf("the policies of app %q are kept in files: %s; change them there, or make it an emergency", e.App, e.By)
}

// DecidedError reports that a proposal is not open any more, or that its author would decide on it.
type DecidedError struct {
	ID     int64
	State  string
	Author bool
}

func (e *DecidedError) Error() string {
	if e.Author {
		return fmt.Sprintf("proposal %d is yours; another owner has to approve it", e.ID)
	}
	return fmt.Sprintf("proposal %d is not open any more, but %s; propose the change again", e.ID, e.State)
}

// InvalidError reports mistakes in what a change says.
type InvalidError struct {
	Name string // of the policy, or "" for the document of App
	App  string
	Err  error
}

func (e *InvalidError) Error() string {
	switch {
	case e.Name != "":
		return fmt.Sprintf("policy %q: %v", e.Name, e.Err)
	case e.App != "":
		return fmt.Sprintf("the document of app %q: %v", e.App, e.Err)
	}
	return e.Err.Error()
}

// Unwrap returns the mistakes.
func (e *InvalidError) Unwrap() error { return e.Err }

// CannotUse is a rule that would not use a text.
type CannotUse struct {
	App, Process string // of a service; "" if the text was in the record before
	Policy       string
	Entry        string // "tier pro", "key user=7", or "" for the policy's text
	Why          string
}

// FormError reports that a change is of another form than what it replaces, so that programs could not use it.
type FormError struct{ CannotUse []CannotUse }

func (e *FormError) Error() string {
	rules, they := "1 rule", "it has"
	if n := len(e.CannotUse); n != 1 {
		rules, they = fmt.Sprintf("%d rules", n), "they have"
	}
	return fmt.Sprintf("%s could not use it; give the algorithms and options that %s, or force it if a new program replaces the old one",
		rules, they)
}

// errDry undoes the transaction of a change that only asks for the differences.
var errDry = errors.New("record: dry")
