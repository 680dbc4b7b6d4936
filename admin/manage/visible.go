package manage

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// visible reports whether a person may know of an app.
func visible(who *rights.Person, app string) bool {
	return rights.Decide(who, rights.ActionView, app) == rights.Allowed
}

// seesKeys reports whether a person may see the keys of the policies that belong to an app, which are persons, mostly.
func seesKeys(who *rights.Person, owner string) bool {
	return rights.Decide(who, rights.ActionLook, owner) == rights.Allowed
}

// policyFor returns a policy of an app as a person may see it: without its keys, if they may not look at any, and
// without the further apps of which they may not know.
func policyFor(who *rights.Person, owner string, p policies.Policy) adminapi.Policy {
	out := adminapi.PolicyOf(p)
	if !seesKeys(who, owner) {
		out.Keys = nil
	}
	out.Apps = slices.DeleteFunc(slices.Clone(p.Apps), func(app string) bool { return !visible(who, app) })
	return out
}

// pastFor is policyFor for a policy that may be none.
func pastFor(who *rights.Person, owner string, p *policies.Policy) *adminapi.Policy {
	if p == nil {
		return nil
	}
	out := policyFor(who, owner, *p)
	return &out
}

// detailFor returns the detail of a row of the audit as a person may see it: without the apps of which they may not know.
func detailFor(who *rights.Person, text string) string {
	var detail map[string]json.RawMessage
	var apps [2][]string
	if json.Unmarshal([]byte(text), &detail) != nil || json.Unmarshal(detail["apps"], &apps) != nil {
		return text // there are none
	}
	for i := range apps {
		apps[i] = slices.DeleteFunc(apps[i], func(app string) bool { return !visible(who, app) })
	}
	shown, err := json.Marshal(apps)
	if err != nil {
		return ""
	}
	detail["apps"] = shown
	out, err := json.Marshal(detail)
	if err != nil {
		return ""
	}
	return string(out)
}

// cannotUseFor returns what cannot be used, without the names of apps and processes of which a person may not know.
func cannotUseFor(who *rights.Person, owner string, all []record.CannotUse) (out []adminapi.CannotUse) {
	for _, no := range all {
		if no.App != "" && !visible(who, no.App) {
			no.App, no.Process = "another app", "?"
		}
		if !seesKeys(who, owner) && len(no.Entry) >= 4 && no.Entry[:4] == "key " {
			no.Entry = "a key"
		}
		out = append(out, adminapi.CannotUse(no))
	}
	return out
}

// shown returns an error of a change of an app as a person may see it: other apps have no names in it.
func (m *Manager) shown(who *rights.Person, app string, err error) error {
	var taken *record.TakenError
	var missing *record.NotFoundError
	var form *record.FormError
	switch {
	case errors.As(err, &taken) && !(visible(who, taken.App) && visible(who, taken.Owner)):
		return &adminapi.Problem{
			Type: adminapi.TypeTaken, Title: http.StatusText(http.StatusConflict), Status: http.StatusConflict,
			Detail: fmt.Sprintf("an app uses a policy %q of another app already; ask an admin which ones these are", taken.Name),
		}
	case errors.As(err, &missing) && missing.Owner != "" && !visible(who, missing.Owner):
		return &adminapi.Problem{
			Type: adminapi.TypeNotFound, Title: http.StatusText(http.StatusNotFound), Status: http.StatusNotFound,
			Detail: fmt.Sprintf("policy %q belongs to another app, which lends it to app %q; ask an admin which one that is", missing.Name, missing.App),
		}
	case errors.As(err, &form):
		p := Problem(form)
		p.CannotUse = cannotUseFor(who, app, form.CannotUse)
		return p
	}
	return err
}
