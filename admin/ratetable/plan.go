package ratetable

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
)

// Plan has the policies that a table becomes, which belong to one app, and a Doubt for whatever the table leaves open.
type Plan struct {
	Owner    string
	Rows     int // of the table
	Policies []Planned
	Doubts   []Doubt
}

// Planned is a policy, and the row that it was made of.
type Planned struct {
	Name   string
	Policy policies.Policy
	Row    Row
}

// Doubt is a part of a row of which it is not clear what it means.
type Doubt struct {
	Row Row
	Why string
	// LeftOut reports that there is no policy of the row.
	LeftOut bool
}

func (d Doubt) String() string {
	left := ""
	if d.LeftOut {
		left = "left out: "
	}
	return fmt.Sprintf("row %d, %.80q: %s%s", d.Row.ID, d.Row.Name, left, d.Why)
}

// PlanOf returns the policies that say what a table says. They belong to the app owner, and name the other apps of
// their rows.
func PlanOf(t Table, owner string) (*Plan, error) {
	if err := policies.CheckApp(owner); err != nil {
		return nil, fmt.Errorf("ratetable: the owner: %w", err)
	}
	p := &Plan{Owner: owner, Rows: len(t.Rows)}
	named := map[string][]int64{} // rows by the names that policies may not share
	for _, r := range t.Rows {
		folded := strings.ToLower(r.Name)
		named[folded] = append(named[folded], r.ID)
	}
	for _, r := range t.Rows {
		policy, whys := t.policy(r, owner)
		if others := named[strings.ToLower(r.Name)]; len(others) > 1 {
			whys = append(whys, fmt.Sprintf("the rows %v have names that differ in case alone; rename all but one", others))
		}
		for _, why := range whys {
			p.Doubts = append(p.Doubts, Doubt{Row: r, Why: why, LeftOut: true})
		}
		if len(whys) > 0 {
			continue
		}
		if strings.TrimSpace(r.Creator) == "" {
			p.Doubts = append(p.Doubts, Doubt{Row: r, Why: "nobody stands in created_by, so that it is not known who answers for it"})
		}
		p.Policies = append(p.Policies, Planned{Name: r.Name, Policy: policy, Row: r})
	}
	if n := len(p.Policies); n > policies.MaxPolicies {
		return nil, fmt.Errorf("ratetable: %d policies for the app %q; an app has at most %d; import the table in parts, from copies of it",
			n, owner, policies.MaxPolicies)
	}
	return p, nil
}

// policy returns what a row says, and why that is not clear.
func (t Table) policy(r Row, owner string) (p policies.Policy, whys []string) {
	doubt := func(format string, args ...any) { whys = append(whys, fmt.Sprintf(format, args...)) }
	if err := policies.CheckName(r.Name); err != nil {
		doubt("the name: %v", err)
	} else if full(r.Name, t.Name) {
		doubt("the name has exactly the %d characters of its column, and may have been cut off", t.Name)
	}
	switch {
	case strings.Trim(r.Apps, ", \t\r\n") == "":
		doubt("apps is empty: does nobody use it, or everybody?")
	case full(r.Apps, t.Apps):
		doubt("apps has exactly the %d characters of its column, and may have been cut off", t.Apps)
	}
	for app := range strings.SplitSeq(r.Apps, ",") {
		app = strings.TrimSpace(app)
		switch err := policies.CheckApp(app); {
		case app == "" || app == owner || slices.Contains(p.Apps, app):
		case err != nil:
			doubt("apps: %v", err)
		default:
			p.Apps = append(p.Apps, app)
		}
	}
	for _, number := range []struct {
		column string
		valid  bool
		value  int64
	}{{"rate", r.Rate.Valid, r.Rate.V}, {"max_permits", r.MaxPermits.Valid, r.MaxPermits.V}} {
		switch {
		case !number.valid:
			doubt("%s is NULL", number.column)
		case number.value <= 0:
			doubt("%s is %d, by which nobody would be admitted: is it meant to be off, or blocked?", number.column, number.value)
		}
	}
	if len(whys) > 0 {
		return p, whys
	}
	p.Text = fmt.Sprintf("%d/1s burst %d token-bucket", r.Rate.V, r.MaxPermits.V)
	if _, err := core.Parse(r.Name + ": " + p.Text); err != nil {
		doubt("%v", err)
	}
	slices.Sort(p.Apps)
	return p, whys
}

// full reports whether a text fills its column.
func full(text string, length int64) bool {
	return length > 0 && int64(utf8.RuneCountInString(text)) >= length
}

// Doubt adds a doubt about a policy that is planned, and leaves the policy out.
func (p *Plan) Doubt(of Planned, why string) {
	p.Policies = slices.DeleteFunc(p.Policies, func(other Planned) bool { return other.Row.ID == of.Row.ID })
	p.Doubts = append(p.Doubts, Doubt{Row: of.Row, Why: why, LeftOut: true})
}
