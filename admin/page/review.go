package page

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// newName stands for the name of a policy in the paths of a form whose field has it.
const newName = "-"

// reviewBody is the screen between a form and what it writes: the difference, and what becomes of callers.
type reviewBody struct {
	App, Name string
	// What is done: "put", "delete", "rollback" or "take-over".
	What     string
	Title    string
	Button   string
	Draft    draft
	To       int64
	Lines    []line
	Same     bool
	Preview  *manage.Preview
	NoReview string // why there is no preview
	Reasons  []string
	FourEyes bool
	Force    bool // somebody has to insist
	MayLook  bool
	Look     string // keys that are looked at beside the busiest
}

// review shows what a change would do. It changes nothing.
func (s *server) review(v *visit) error {
	ctx := v.r.Context()
	body := &reviewBody{App: v.app, What: v.r.PostForm.Get("what"), Draft: typed(v.r), To: numberIn(v.r, "to"), Reasons: reasons}
	if v.name == newName {
		v.name = strings.TrimSpace(v.r.PostForm.Get("name"))
	}
	body.Name = v.name
	settings, err := s.Manager.Settings(ctx, v.who, v.app)
	if err != nil {
		return err
	}
	if !v.may(rights.ActionWrite) {
		return &manage.RightError{Verdict: rights.Forbidden, Action: rights.ActionWrite, App: v.app}
	}
	body.FourEyes = settings.FourEyes
	if body.MayLook = v.may(rights.ActionLook); body.MayLook {
		body.Look = strings.TrimSpace(v.r.PostForm.Get("look"))
	}
	var before *adminapi.Policy
	held, err := s.Manager.Policy(ctx, v.who, v.app, v.name)
	switch {
	case err == nil:
		before = &held.Policy
	case manage.Problem(err).Status != http.StatusNotFound:
		return err
	}
	after, again, err := s.after(v, body)
	switch {
	case err != nil:
		return err
	case again != nil:
		return s.editAgain(v, again)
	}
	if body.What == "put" && held != nil && body.Draft.Revision != held.Revision || body.What == "put" && held == nil && body.Draft.Revision != 0 {
		return s.stale(v, body.Draft)
	}
	body.Lines = difference(before, after)
	body.Same = len(changed(body.Lines)) == 0
	if after != nil {
		body.Preview, err = s.Manager.Preview(ctx, v.who, v.app, v.name, manage.AskPreview{Policy: *after, Keys: strings.Fields(body.Look)})
		if err != nil {
			p := manage.Problem(err)
			if p.Status == http.StatusUnprocessableEntity {
				return s.editAgain(v, &policyBody{Draft: body.Draft, Wrong: wrongOf(p)})
			}
			body.NoReview = s.gap(v, err)
		} else {
			body.Force = len(body.Preview.CannotUse) > 0
		}
	}
	return s.show(v, http.StatusOK, "review", frame{Title: body.Title, Section: "home", Body: body})
}

// after returns the policy that a change makes, nil for one that is deleted, or the editor to show if there is none.
func (s *server) after(v *visit, body *reviewBody) (*adminapi.Policy, *policyBody, error) {
	switch body.What {
	case "delete":
		body.Title, body.Button = "Delete "+v.name, "Delete it"
		return nil, nil, nil
	case "rollback":
		body.Title, body.Button = "Back to revision "+strconv.FormatInt(body.To, 10)+" of "+v.name, "Go back to it"
		history, err := s.Manager.History(v.r.Context(), v.who, v.app, v.name, body.To+1, 1)
		if err != nil {
			return nil, nil, err
		}
		if len(history.Versions) == 0 || history.Versions[0].Revision != body.To {
			return nil, nil, errNoPage
		}
		return history.Versions[0].Policy, nil, nil
	case "take-over":
		body.Title, body.Button = "Take over "+v.name, "Take it over"
		p, err := s.Manager.CodeOf(v.r.Context(), v.who, v.app, v.name)
		if err != nil {
			if p := manage.Problem(err); p.Status == http.StatusConflict { // somebody has to choose
				return nil, &policyBody{Draft: body.Draft, Wrong: wrongOf(p)}, nil
			}
			return nil, nil, err
		}
		return p, nil, nil
	}
	body.What, body.Title, body.Button = "put", "Change "+v.name, "Publish it"
	p, wrong := body.Draft.policy()
	if v.name == "" {
		wrong = append(wrong, adminapi.Mistake{Location: "name", Message: "the policy has no name; give it the one that the code has"})
	}
	if says := s.saysOf(v, body.Draft); len(wrong)+len(says.Mistakes) > 0 {
		return nil, &policyBody{Draft: body.Draft, Wrong: wrong}, nil
	}
	return &p, nil, nil
}

// write writes what was reviewed.
func (s *server) write(v *visit) error {
	ctx := v.r.Context()
	d := typed(v.r)
	w := manage.Write{Revision: d.Revision, Create: d.Revision == 0, Reason: v.reasonOf(), Force: d.Force, Emergency: d.Emergency}
	var written *adminapi.Written
	var err error
	switch v.r.PostForm.Get("what") {
	case "delete":
		written, err = s.Manager.DeletePolicy(ctx, v.who, v.app, v.name, w)
	case "rollback":
		written, err = s.Manager.Rollback(ctx, v.who, v.app, v.name, numberIn(v.r, "to"), w)
	case "take-over":
		written, err = s.Manager.TakeOver(ctx, v.who, v.app, v.name, w)
	default:
		p, wrong := d.policy()
		if len(wrong) > 0 {
			return s.editAgain(v, &policyBody{Draft: d, Wrong: wrong})
		}
		written, err = s.Manager.PutPolicy(ctx, v.who, v.app, v.name, p, w)
	}
	if err == nil {
		if v.r.PostForm.Get("what") == "delete" && written.Proposal == "" {
			v.goTo(pathTo("apps", v.app))
			return nil
		}
		return s.written(v, written)
	}
	typed := v.r.PostForm.Get("what") == "put"
	switch p := manage.Problem(err); p.Status {
	case http.StatusPreconditionFailed:
		if !typed { // there is no text of this person to hold against the one of now
			return s.again(v, nil)
		}
		return s.stale(v, d)
	case http.StatusUnprocessableEntity, http.StatusConflict:
		if !typed && d.Revision > 0 {
			return s.again(v, wrongOf(p))
		}
		return s.editAgain(v, &policyBody{Draft: d, Wrong: wrongOf(p)})
	}
	return err
}

// wrongOf lists what a refusal says.
func wrongOf(p *adminapi.Problem) []adminapi.Mistake {
	wrong := p.Errors
	for _, c := range p.CannotUse {
		wrong = append(wrong, adminapi.Mistake{Message: c.String()})
	}
	if len(wrong) == 0 {
		wrong = append(wrong, adminapi.Mistake{Message: p.Detail})
	}
	return wrong
}

// stale shows both versions to somebody who has edited one that does not hold any more, with all they have typed. What
// they send next replaces the version that they see now.
func (s *server) stale(v *visit, d draft) error {
	ctx := v.r.Context()
	held, err := s.Manager.Policy(ctx, v.who, v.app, v.name)
	gone := err != nil && manage.Problem(err).Status == http.StatusNotFound
	if err != nil && !gone {
		return err
	}
	st := &stale{Read: d.Revision, Gone: gone}
	var now, read *adminapi.Policy
	if held != nil {
		now, st.Revision = &held.Policy, held.Revision
	}
	if history, err := s.Manager.History(ctx, v.who, v.app, v.name, 0, adminapi.MaxLimit); err == nil {
		for i, past := range history.Versions {
			if i == 0 {
				st.Who, st.Reason, st.At = past.Who, past.Reason, past.At
				if gone {
					st.Revision = past.Revision
				}
			}
			if past.Revision == d.Revision {
				read = past.Policy
			}
		}
	}
	yours, _ := d.policy()
	st.Theirs = changed(difference(read, now))
	st.Yours = changed(difference(now, &yours))
	d.Revision = 0
	if held != nil {
		d.Revision = held.Revision
	}
	return s.showPolicy(v, &policyBody{Held: held, Draft: d, Started: d.Revision, Stale: st})
}

// line is a line of a difference.
type line struct {
	Class string // "plus", "minus" or ""
	Text  string
}

// difference lists two policies line by line, what stands in both included. nil is a policy that is not there.
func difference(before, after *adminapi.Policy) []line {
	return differenceOf(entries(before), entries(after))
}

// differenceOf lists entries by their names, those of both sides.
func differenceOf(a, b map[string]string) []line {
	var lines []line
	names := slices.Sorted(maps.Keys(a))
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		was, had := a[name]
		is, has := b[name]
		switch {
		case had && has && was == is:
			lines = append(lines, line{"", is})
		default:
			if had {
				lines = append(lines, line{"minus", was})
			}
			if has {
				lines = append(lines, line{"plus", is})
			}
		}
	}
	return lines
}

// changed returns the lines of a difference that differ.
func changed(lines []line) []line {
	return slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return l.Class == "" })
}

// entries returns the lines of a policy by names that sort as they are shown.
func entries(p *adminapi.Policy) map[string]string {
	all := map[string]string{}
	if p == nil {
		return all
	}
	all["0"] = cmp.Or(p.Text, "as the code says")
	for name, text := range p.Tiers {
		all["1"+name] = fmt.Sprintf("tier %s: %s", name, text)
	}
	for name, text := range p.Keys {
		all["2"+name] = fmt.Sprintf("key %s: %s", name, text)
	}
	if len(p.Apps) > 0 {
		all["3"] = "also for " + joined(slices.Sorted(slices.Values(p.Apps)))
	}
	return all
}
