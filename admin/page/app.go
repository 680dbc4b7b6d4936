package page

import (
	"net/http"
	"slices"
	"strings"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// appBody is the screen of an app.
type appBody struct {
	manage.AppView
	Name      string
	Line      homeApp
	Policies  []appPolicy
	Processes []adminapi.Process
	Unread    string // why they are not known
	// Which rows of the policies and of the code's limits are shown.
	PolicyRows, CodeRows rows
	// Quiet is the number of processes that have no line; with QuietWell all of them obey.
	Quiet     int
	QuietWell bool
	MayWrite  bool
	// MaySettings reports whether the person may change the settings and the rights.
	MaySettings bool
}

// appPolicy is a policy as the list of an app has it.
type appPolicy struct {
	manage.PolicyView
	Own     bool   // it belongs to the app itself
	Link    string // the address of its screen, "" if the person may not see the app to which it belongs
	Badges  []badge
	Perhaps string // what it says in a sentence
	Minute  manage.UsageCounts
}

// badge is a word with a level.
type badge struct {
	Level level
	Text  string
}

func (s *server) app(v *visit) error {
	view, err := s.Manager.App(v.r.Context(), v.who, v.app)
	if err != nil {
		return err
	}
	body := &appBody{
		AppView: *view, Name: v.app, Line: homeAppOf(view.App),
		MayWrite: v.may(rights.ActionWrite) && view.Settings.KeptBy == "", MaySettings: v.may(rights.ActionSettings),
	}
	if services, err := s.Manager.Services(v.r.Context(), v.who, v.app); err == nil {
		body.Processes = services.Processes
	} else {
		body.Unread = s.gap(v, err)
	}
	for _, p := range view.Policies {
		policy := appPolicyOf(v.app, p)
		if policy.Own || v.may(rights.ActionView, p.Owner) {
			policy.Link = pathToPolicy(p.Owner, p.Name)
		}
		body.Policies = append(body.Policies, policy)
	}
	slices.SortStableFunc(body.Policies, func(a, b appPolicy) int { return int(rank(b.Badges) - rank(a.Badges)) })
	slices.SortStableFunc(body.Processes, func(a, b adminapi.Process) int { return urgency(b) - urgency(a) })
	path := pathTo("apps", v.app)
	body.PolicyRows = v.rowsOf(path, "policies", len(body.Policies), policiesOnPage)
	body.Policies = body.Policies[body.PolicyRows.From:body.PolicyRows.To]
	body.CodeRows = v.rowsOf(path, "code", len(body.Code), policiesOnPage)
	body.Code = body.Code[body.CodeRows.From:body.CodeRows.To]
	if all := len(body.Processes); all > processesOnPage {
		body.Quiet, body.QuietWell = all-processesOnPage, urgency(body.Processes[processesOnPage]) == 0
		body.Processes = body.Processes[:processesOnPage]
	}
	return s.show(v, http.StatusOK, "app", frame{Title: v.app, Section: "home", Live: withoutHave(v.r.URL), Body: body})
}

// lost reports whether a process of this meaning does not know what holds.
func lost(m policies.Meaning) bool { return m == policies.Unread || m == policies.Stale }

// Bounds of the lists of an app: with them its page is not larger than 150 KiB.
const (
	policiesOnPage  = 80
	processesOnPage = 40
)

// urgency is higher the more a process needs a look.
func urgency(p adminapi.Process) int {
	switch {
	case lost(p.Meaning):
		return 3
	case slices.ContainsFunc(p.Rules, func(r adminapi.Rule) bool { return r.Meaning == policies.Unusable }):
		return 2
	case p.Behind || p.Ahead:
		return 1
	}
	return 0
}

func appPolicyOf(app string, view manage.PolicyView) appPolicy {
	p := appPolicy{PolicyView: view, Own: view.Owner == app, Badges: badgesOf(view.Origins)}
	p.Perhaps = strings.Join(view.Words, "; ")
	if n := len(view.Usage); n > 0 {
		p.Minute = view.Usage[n-1].UsageCounts
	}
	return p
}

// badgesOf returns a badge for each state in which rules are, with their number.
func badgesOf(origins map[string]int) []badge {
	all := 0
	for _, n := range origins {
		all += n
	}
	var badges []badge
	for _, word := range []struct {
		level level
		name  string
	}{{bad, "unusable"}, {bad, "unread"}, {bad, "stale"}, {warn, "trial"}, {note, "code"}, {good, "fleet"}} {
		n := origins[word.name]
		if n == 0 {
			continue
		}
		text := word.name
		if n < all {
			text += " " + number(n) + " of " + number(all)
		}
		badges = append(badges, badge{word.level, text})
	}
	if all == 0 {
		badges = append(badges, badge{note, "in no process"})
	}
	return badges
}

func rank(badges []badge) level {
	worst := good
	for _, b := range badges {
		worst = max(worst, b.Level)
	}
	return worst
}
