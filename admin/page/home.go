package page

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// level is the urgency of something. The words for it stand beside each color and mark.
type level int

const (
	good level = iota
	note
	warn
	bad
)

// String returns the class of a level in the style sheet.
func (l level) String() string { return [...]string{"good", "accent", "warn", "bad"}[l] }

// homeBody is the home screen: is everything obeyed?
type homeBody struct {
	Level   level
	Verdict string
	Summary string
	Apps    []homeApp
	More    bool // there are more apps than are read
	MayAdd  bool // they may add an app
	Search  string
	Nothing bool // the search has found nothing
	Found   *manage.Found
}

// homeApp is a line of it.
type homeApp struct {
	manage.App
	Name  string
	Level level
	// Word is that of the level; Causes say what is wrong, the worst first.
	Word   string
	Causes []string
	Notes  []string
}

// maxApps bounds what home reads: the worst of them are shown first, so it has to read them all.
const maxApps = 1000

func (s *server) home(v *visit) error {
	body, err := s.homeOf(v)
	if err != nil {
		return err
	}
	title := "Home"
	if body.Level >= warn {
		title = body.Verdict
	}
	return s.show(v, http.StatusOK, "home", frame{Title: title, Section: "home", Live: "/", Body: body})
}

func (s *server) homeOf(v *visit) (*homeBody, error) {
	body := &homeBody{MayAdd: rights.Decide(v.who, rights.ActionAddApp) == rights.Allowed}
	after := ""
	for {
		page, err := s.Manager.Apps(v.r.Context(), v.who, after, adminapi.MaxLimit)
		if err != nil {
			return nil, err
		}
		for _, app := range page.Apps {
			body.Apps = append(body.Apps, homeAppOf(app))
			after = app.App.App
		}
		if len(page.Apps) < adminapi.MaxLimit {
			break
		}
		if body.More = len(body.Apps) >= maxApps; body.More {
			break
		}
	}
	slices.SortStableFunc(body.Apps, func(a, b homeApp) int {
		refused := func(h *manage.Health) uint64 {
			if h == nil {
				return 0
			}
			return h.Refused
		}
		return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(len(b.Causes), len(a.Causes)),
			cmp.Compare(refused(b.Health), refused(a.Health)), strings.Compare(a.Name, b.Name))
	})
	body.judge()
	return body, nil
}

// homeAppOf judges an app.
func homeAppOf(app manage.App) homeApp {
	line := homeApp{App: app, Name: app.App.App}
	cause := func(l level, text string) {
		line.Level = max(line.Level, l)
		line.Causes = append(line.Causes, text)
	}
	if app.Alarm != "" {
		cause(bad, "nothing more is published: "+app.Alarm)
	}
	if app.Stuck > 0 {
		cause(bad, count(app.Stuck, "temporary change", "temporary changes")+" could not be ended")
	}
	h := app.Health
	if h == nil {
		cause(warn, "its processes have not been read")
	} else {
		if h.Unusable > 0 {
			cause(bad, count(h.Unusable, "process", "processes")+" cannot use a text")
		}
		if h.Stale > 0 {
			cause(bad, count(h.Stale, "process", "processes")+" cannot read the policies any more")
		}
		if h.Behind > 0 {
			cause(warn, count(h.Behind, "process", "processes")+" behind")
		}
		if h.Processes == 0 {
			line.Level = max(line.Level, note)
			line.Notes = append(line.Notes, "no process has been heard in the last minute")
		}
		if h.Trials > 0 {
			line.Notes = append(line.Notes, count(h.Trials, "policy", "policies")+" on trial")
		}
	}
	if app.Alarm == "" && !app.Published && app.Revision > 0 {
		cause(warn, "the last change is not published yet")
	}
	line.Word = [...]string{"obeyed", "quiet", "not yet obeyed", "not obeyed"}[line.Level]
	if h == nil {
		line.Word = "unknown"
	}
	return line
}

// judge sets the level of everything, and the sentence for it.
func (b *homeBody) judge() {
	var processes, trials, wrong int
	var worst []string
	for _, app := range b.Apps {
		if app.Health != nil {
			processes += app.Health.Processes
			trials += app.Health.Trials
		}
		if app.Level >= warn {
			wrong++
			b.Level = max(b.Level, app.Level)
			worst = append(worst, app.Name)
		}
	}
	switch {
	case len(b.Apps) == 0:
		b.Level, b.Verdict = note, "No apps yet"
		if b.Summary = "An app appears here when somebody adds it or gives you a right on it."; b.MayAdd {
			b.Summary = "Add the first one by the name that its services follow."
		}
		return
	case b.Level == bad:
		b.Verdict = count(wrong, "app needs", "apps need") + " a look"
	case b.Level == warn:
		b.Verdict = "Not everything is obeyed yet"
	case processes == 0: // not even those that obey: perhaps they are in another Redis
		b.Level, b.Verdict = note, "No process has been heard in the last minute"
	default:
		b.Verdict = "Everything is obeyed"
	}
	parts := []string{count(len(b.Apps), "app", "apps"), count(processes, "process", "processes")}
	if trials > 0 {
		parts = append(parts, count(trials, "policy", "policies")+" on trial")
	}
	b.Summary = strings.Join(parts, " · ")
	if len(worst) > 3 {
		worst = append(worst[:3:3], "others")
	}
	if len(worst) > 0 {
		b.Summary = "Look at " + joined(worst) + ". " + b.Summary
	}
}

// search leads to what a text names: an app, a policy, or a key, which stands in no address.
func (s *server) search(v *visit) error {
	text := strings.TrimSpace(v.r.PostForm.Get("text"))
	if text == "" {
		v.goTo("/")
		return nil
	}
	found, err := s.Manager.Search(v.r.Context(), v.who, text)
	if err != nil {
		return err
	}
	switch key := found.Key != "" && len(found.KeyApps) > 0; {
	case key && len(found.Apps)+len(found.Policies) == 0 && len(found.KeyApps) == 1:
		return s.showKey(v, found.KeyApps[0], found.Key)
	case !key && len(found.Apps) == 1 && (len(found.Policies) == 0 || found.Apps[0] == text):
		v.goTo(pathTo("apps", found.Apps[0]))
		return nil
	case !key && len(found.Apps) == 0 && len(found.Policies) == 1:
		v.goTo(pathToPolicy(found.Policies[0].App, found.Policies[0].Name))
		return nil
	}
	nothing := len(found.Apps)+len(found.Policies)+len(found.KeyApps) == 0
	return s.show(v, http.StatusOK, "search", frame{
		Title: "Search", Section: "home", Search: text, Body: &homeBody{Search: text, Found: found, Nothing: nothing},
	})
}
