package page

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// policyBody is the screen of a policy.
type policyBody struct {
	App, Name string
	Held      *manage.Held // nil of a new one
	Draft     draft
	Says      *saysBody
	// Started is the revision from which the draft began, which stays the same while the live part goes on.
	Started int64
	// Moved says that somebody has changed the policy since.
	Moved bool
	// Stale has both versions, of a draft that was refused because of that.
	Stale *stale
	Wrong []adminapi.Mistake
	// OnTheWay reports that processes have not followed a change yet that was just written.
	OnTheWay bool
	// Done reports that a change was just written, and Proposed is the id of the proposal that it has become instead.
	Done     bool
	Proposed string

	MayWrite, MayTrial, MayLook bool
	KeptBy                      string
	FourEyes                    bool
	Trial                       *trialForm

	Badges    []badge
	OnTrial   bool // nobody is refused
	Obeying   int
	Using     []use
	CannotUse []use
	Unread    string // why the processes are not known
	Curve     template.HTML
	Minute    manage.UsageCounts
	Hour      manage.UsageCounts
	Missed    []string
	NoUsage   string
	Keys      *manage.Keys
	NoKeys    string
	History   []version
	Older     bool
	Presets   []manage.Preset
	Reasons   []string
}

// use is a rule of a process that has the policy.
type use struct {
	Process adminapi.Process
	Rule    adminapi.Rule
}

// version is a version with its difference to the one before.
type version struct {
	adminapi.Past
	Now   bool
	Lines []line
}

// stale has both versions of a policy that two people have changed.
type stale struct {
	Who, Reason string
	At          time.Time
	Revision    int64
	Read        int64
	Theirs      []line // what changed between what was read and what holds now
	Yours       []line // what the draft would change of what holds now
	Gone        bool   // it was deleted meanwhile
}

// noReason is the reason of whoever neither chooses nor types one. It stands in the audit, and so it has to be true.
const noReason = "no reason given"

// reasons are those that are offered for a change; any other may be typed.
var reasons = []string{noReason, "customer complains", "attack", "maintenance", "trying numbers out"}

// ends are the times after which something ends by itself.
var ends = []struct {
	Value string
	Text  string
	After time.Duration
}{
	{"1h", "in 1 hour", time.Hour},
	{"4h", "in 4 hours", 4 * time.Hour},
	{"1d", "in 1 day", 24 * time.Hour},
	{"7d", "in 7 days", 7 * 24 * time.Hour},
	{"never", "never", 0},
}

// end is a choice among them.
type end struct {
	Value, Text string
	Chosen      bool
}

// endsFor returns the choices of a person: what never ends is for owners.
func endsFor(owner bool) []end {
	var all []end
	for _, e := range ends {
		if owner || e.After > 0 {
			all = append(all, end{e.Value, e.Text, e.Value == "1d"})
		}
	}
	return all
}

// endOf returns the end that a form has chosen. The zero time is none.
func (v *visit) endOf() time.Time {
	for _, e := range ends {
		if e.Value == v.r.PostForm.Get("end") && e.After > 0 {
			return v.now.Add(e.After)
		}
	}
	return time.Time{}
}

// reasonOf returns the reason that a form has: the one chosen, and what was typed beside it. An emergency needs one.
func (v *visit) reasonOf() string {
	chosen := strings.TrimSpace(v.r.PostForm.Get("reason"))
	words := strings.Join(strings.Fields(v.r.PostForm.Get("words")), " ")
	switch {
	case chosen == noReason && (words != "" || v.r.PostForm.Get("emergency") != ""):
		return words
	case chosen == "" || chosen == "other":
		return words
	case words == "":
		return chosen
	}
	return chosen + ": " + words
}

// trialForm puts a policy on trial, or ends that.
type trialForm struct {
	On       bool // what the button does
	Before   string
	After    string
	NoTrial  string // why there is no After
	Revision int64
	Ends     []end
	Reasons  []string
	// Temporary is the change that ends by itself, nil if there is none.
	Temporary *adminapi.Temporarily
	Until     time.Time // its end
}

// policy shows a policy.
func (s *server) policy(v *visit) error {
	held, err := s.Manager.Policy(v.r.Context(), v.who, v.app, v.name)
	if err != nil {
		return s.elsewhere(v, err)
	}
	started := held.Revision
	if n, err := strconv.ParseInt(v.r.URL.Query().Get("from"), 10, 64); err == nil && v.fragment() {
		started = n // the browser has the form of this revision, and keeps it
	}
	body := &policyBody{Held: held, Draft: draftOf(held.Policy, held.Revision), Started: started, Moved: started != held.Revision}
	query := v.r.URL.Query()
	body.Done, body.Proposed = query.Get("done") != "", query.Get("proposed")
	return s.showPolicy(v, body)
}

// elsewhere leads to where a policy stands that the app uses and the record does not have under it: to that of the app
// that shares it, or to the limits of the code.
func (s *server) elsewhere(v *visit, err error) error {
	if manage.Problem(err).Status != http.StatusNotFound || v.fragment() {
		return err
	}
	app, problem := s.Manager.App(v.r.Context(), v.who, v.app)
	if problem != nil {
		return err
	}
	for _, p := range app.Policies {
		if p.Name == v.name && p.Owner != v.app && v.may(rights.ActionView, p.Owner) {
			v.goTo(pathToPolicy(p.Owner, p.Name))
			return nil
		}
	}
	if slices.ContainsFunc(app.Code, func(c manage.CodeLimit) bool { return c.Name == v.name }) {
		v.goTo(pathTo("apps", v.app) + "#code")
		return nil
	}
	return err
}

// newPolicy shows the editor with nothing in it, or with a preset.
func (s *server) newPolicy(v *visit) error {
	if _, err := s.Manager.Settings(v.r.Context(), v.who, v.app); err != nil {
		return err
	}
	if !v.may(rights.ActionWrite) {
		return &manage.RightError{Verdict: rights.Forbidden, Action: rights.ActionWrite, App: v.app}
	}
	presets, err := s.Manager.Presets(v.r.Context(), v.who)
	if err != nil {
		return err
	}
	body := &policyBody{Presets: presets.Presets}
	v.name = v.r.URL.Query().Get("name")
	for _, p := range body.Presets {
		if p.Name == v.r.URL.Query().Get("preset") {
			body.Draft = draftOf(adminapi.Policy{Text: p.Text, Tiers: p.Tiers}, 0)
			v.name = cmp.Or(v.name, p.Name)
		}
	}
	return s.showPolicy(v, body)
}

// edit shows the editor again with what was typed.
func (s *server) edit(v *visit) error {
	if v.name == newName {
		v.name = strings.TrimSpace(v.r.PostForm.Get("name"))
	}
	return s.editAgain(v, &policyBody{Draft: typed(v.r)})
}

func (s *server) editAgain(v *visit, body *policyBody) error {
	held, err := s.Manager.Policy(v.r.Context(), v.who, v.app, v.name)
	if err != nil && manage.Problem(err).Status != http.StatusNotFound {
		return err
	}
	if err == nil {
		body.Held = held
	}
	body.Started = body.Draft.Revision
	return s.showPolicy(v, body)
}

// showPolicy fills in what stands around a draft. What cannot be read leaves a gap that says why.
func (s *server) showPolicy(v *visit, body *policyBody) error {
	ctx := v.r.Context()
	settings, err := s.Manager.Settings(ctx, v.who, v.app)
	if err != nil {
		return err
	}
	body.App, body.Name = v.app, v.name
	body.KeptBy, body.FourEyes = settings.KeptBy, settings.FourEyes
	var further []string
	if body.Held != nil {
		further = body.Held.Policy.Apps
	}
	body.MayWrite = v.may(rights.ActionWrite, further...) && body.KeptBy == ""
	body.MayTrial = v.may(rights.ActionTrial, further...)
	body.MayLook = v.may(rights.ActionLook)
	body.Reasons = reasons
	body.Says = s.saysOf(v, body.Draft)
	frame := frame{Title: v.name + " of " + v.app, Section: "home", Body: body}
	if body.Held != nil {
		s.around(ctx, v, body)
		query := url.Values{"from": {strconv.FormatInt(body.Started, 10)}}
		if body.Done {
			query.Set("done", "1")
		}
		if body.Proposed != "" {
			query.Set("proposed", body.Proposed)
		}
		frame.Live = addressOf(pathToPolicy(v.app, v.name), query)
	} else {
		frame.Title = "New policy of " + v.app
	}
	return s.show(v, http.StatusOK, "policy", frame)
}

// soon is the time in which processes follow a change, with much to spare: until then nothing is wrong if they do not.
const soon = 10 * time.Second

// around reads what services and history say of a policy.
func (s *server) around(ctx context.Context, v *visit, body *policyBody) {
	services, err := s.Manager.Services(ctx, v.who, v.app)
	if err == nil {
		body.uses(services)
	} else {
		body.Unread = s.gap(v, err)
	}
	usage, err := s.Manager.Usage(ctx, v.who, v.app, v.name, v.now.Add(-time.Hour))
	if err == nil {
		body.usage(usage, v.now)
	} else {
		body.NoUsage = s.gap(v, err)
	}
	if body.MayLook {
		keys, _, err := s.Manager.Keys(ctx, v.who, v.app, v.name)
		if err == nil {
			body.Keys, body.NoKeys = keys, keys.Why
		} else {
			body.NoKeys = s.gap(v, err)
		}
	}
	const shown = 20
	history, err := s.Manager.History(ctx, v.who, v.app, v.name, 0, shown+1)
	if err == nil {
		body.history(history.Versions, shown)
	}
	body.OnTheWay = body.Done && len(body.CannotUse) > 0 && len(body.History) > 0 && v.now.Sub(body.History[0].At) < soon &&
		!slices.ContainsFunc(body.CannotUse, func(u use) bool { return u.Rule.Meaning == policies.Unusable || lost(u.Process.Meaning) })
	s.offerTrial(ctx, v, body)
}

// gap returns why a part of a screen is missing, for people.
func (s *server) gap(v *visit, err error) string {
	p := manage.Problem(err)
	if p.Status >= http.StatusInternalServerError {
		s.Log.WarnContext(v.r.Context(), "page: a part of a screen is missing", "path", v.r.URL.Path, "err", err)
	}
	return cmp.Or(p.Detail, p.Title)
}

// uses sorts the rules of processes that have the policy.
func (b *policyBody) uses(services *adminapi.Services) {
	origins := map[string]int{}
	for _, p := range services.Processes {
		for _, r := range p.Rules {
			if r.Policy != b.Name {
				continue
			}
			meaning := r.Meaning
			if lost(p.Meaning) {
				meaning = p.Meaning
			}
			origins[string(meaning)]++
			b.OnTrial = b.OnTrial || meaning == policies.Trial
			u := use{p, r}
			b.Using = append(b.Using, u)
			if meaning == policies.Unusable || lost(p.Meaning) || p.Behind {
				b.CannotUse = append(b.CannotUse, u)
			} else {
				b.Obeying++
			}
		}
	}
	b.Badges = badgesOf(origins)
}

func (b *policyBody) usage(u *manage.Usage, now time.Time) {
	b.Curve = curve(u.Points, now)
	b.Missed = u.Missed
	for _, p := range u.Points {
		b.Hour.Admitted += p.Admitted
		b.Hour.Refused += p.Refused
		b.Hour.Failed += p.Failed
		b.Hour.Waited += p.Waited
	}
	if n := len(u.Points); n > 0 {
		b.Minute = u.Points[n-1].UsageCounts
	}
}

func (b *policyBody) history(versions []adminapi.Past, shown int) {
	for i, past := range versions {
		if i == shown {
			b.Older = true
			break
		}
		v := version{Past: past, Now: past.Revision == b.Held.Revision}
		var before *adminapi.Policy
		if i+1 < len(versions) {
			before = versions[i+1].Policy
		}
		v.Lines = changed(difference(before, past.Policy))
		b.History = append(b.History, v)
	}
}

// offerTrial offers to put the policy on trial, or to enforce it.
func (s *server) offerTrial(ctx context.Context, v *visit, b *policyBody) {
	if !b.MayTrial || b.Held == nil {
		return
	}
	says := b.Says
	if b.Draft.Text != b.Held.Policy.Text { // somebody has typed another one
		says = s.saysOf(v, draft{Text: b.Held.Policy.Text})
	}
	f := &trialForm{
		Before: b.Held.Policy.Text, On: !says.Trial, Revision: b.Held.Revision, Reasons: reasons, Ends: endsFor(b.MayWrite),
	}
	after, err := s.Manager.TrialOf(ctx, v.who, b.App, b.Name, f.On)
	if f.After = after; err != nil {
		f.NoTrial = s.gap(v, err)
	}
	for _, t := range b.Held.Temporary {
		if t.Key == "" {
			f.Until, f.Temporary = t.Until, &t
		}
	}
	b.Trial = f
}

// trial puts a policy on trial or enforces it, or ends what would end by itself: the difference stands beside the button.
func (s *server) trial(v *visit) error {
	w := manage.Write{Revision: numberIn(v.r, "revision"), Reason: v.reasonOf()}
	var written *adminapi.Written
	var err error
	if v.r.PostForm.Get("what") == "end" {
		written, err = s.Manager.EndTemporary(v.r.Context(), v.who, v.app, v.name, w)
	} else {
		on := v.r.PostForm.Get("on") == "true"
		written, err = s.Manager.Trial(v.r.Context(), v.who, v.app, v.name, on, v.endOf(), w)
	}
	if err != nil {
		if manage.Problem(err).Status == http.StatusPreconditionFailed {
			return s.again(v, nil)
		}
		return err
	}
	if d := written.Differences; len(d) == 1 && d[0].After == nil { // it was there for this time alone
		v.goTo(pathTo("apps", v.app))
		return nil
	}
	return s.written(v, written)
}

// again shows the policy as it is to somebody who wanted to do something to it, and why that was refused: without reasons,
// it was an earlier version of it.
func (s *server) again(v *visit, wrong []adminapi.Mistake) error {
	held, err := s.Manager.Policy(v.r.Context(), v.who, v.app, v.name)
	if err != nil {
		return err
	}
	return s.showPolicy(v, &policyBody{
		Held: held, Draft: draftOf(held.Policy, held.Revision), Started: held.Revision, Moved: len(wrong) == 0, Wrong: wrong,
	})
}

// written leads to the policy after a change.
func (s *server) written(v *visit, w *adminapi.Written) error {
	query := url.Values{"done": {"1"}}
	if w.Proposal != "" {
		query = url.Values{"proposed": {w.Proposal}}
	}
	v.goTo(pathToPolicy(v.app, v.name) + "?" + query.Encode())
	return nil
}
