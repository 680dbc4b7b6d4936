package page

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// settingsBody is the screen of settings: who one is, tokens, people, and the apps.
type settingsBody struct {
	Me     *rights.Person
	Roles  []roleOf
	Apps   []manage.App
	Tokens []manage.Token
	// Which rows of each list are shown.
	AppRows, TokenRows, PeopleRows rows
	// Names are those of people by their ids, as far as they are known.
	Names     map[string]string
	NoTokens  string // why there are no tokens
	Made      *manage.MadeToken
	MayToken  bool
	MayAdd    bool
	People    []manage.Somebody
	MayPeople bool // they see people
	MayBar    bool // they put people out
	Ways      []string
	Days      []int
	Imports   []manage.Import
	// Which rows of the last one are shown.
	DoubtRows, TakenRows rows
	Reasons              []string
	Done                 string
	Problem              string
}

// roleOf is a role in an app.
type roleOf struct{ App, Role string }

// reasonsOfRights are those that are offered for changes of rights and settings; any other may be typed.
var reasonsOfRights = []string{noReason, "as agreed", "new in the team", "left the team", "new program"}

// roles are those that a form offers, the least first.
var roles = []string{rights.Viewer.String(), rights.Operator.String(), rights.Owner.String()}

// settings shows what concerns people and programs.
func (s *server) settings(v *visit) error { return s.showSettings(v, nil, "", "") }

func (s *server) showSettings(v *visit, made *manage.MadeToken, done, problem string) error {
	ctx := v.r.Context()
	body := &settingsBody{
		Me: v.who, Made: made, Done: done, Problem: problem, Reasons: reasonsOfRights, Ways: roles, Days: []int{7, 30, 90, 365},
		Names: map[string]string{v.who.ID: v.who.Name}, MayAdd: rights.Decide(v.who, rights.ActionAddApp) == rights.Allowed,
		MayBar: rights.Decide(v.who, rights.ActionGroups) == rights.Allowed,
	}
	apps, err := s.Manager.Apps(ctx, v.who, "", adminapi.MaxLimit)
	if err != nil {
		return err
	}
	for _, app := range apps.Apps {
		body.Roles = append(body.Roles, roleOf{app.App.App, app.Role})
		body.MayToken = body.MayToken || rights.Decide(v.who, rights.ActionToken, app.App.App) == rights.Allowed
	}
	body.AppRows = v.rowsOf("/settings", "apps", len(apps.Apps), maxRows)
	body.Apps = apps.Apps[body.AppRows.From:body.AppRows.To]
	people, err := s.people(v)
	if err == nil {
		body.PeopleRows = v.rowsOf("/settings", "people", len(people), maxRows)
		body.People, body.MayPeople = people[body.PeopleRows.From:body.PeopleRows.To], true
		for _, p := range people {
			body.Names[p.ID] = p.Name
		}
	}
	tokens, err := s.tokens(v)
	if err == nil {
		body.TokenRows = v.rowsOf("/settings", "tokens", len(tokens), maxRows)
		body.Tokens = tokens[body.TokenRows.From:body.TokenRows.To]
	} else {
		body.NoTokens = s.gap(v, err)
	}
	if v.who.Admin {
		if imports, err := s.Manager.Imports(ctx, v.who); err == nil {
			body.Imports = imports.Imports
		}
		if len(body.Imports) > 0 {
			body.DoubtRows = v.rowsOf("/settings", "doubts", len(body.Imports[0].Doubts), maxRows)
			body.TakenRows = v.rowsOf("/settings", "taken", len(body.Imports[0].Taken), maxRows)
		}
	}
	return s.show(v, http.StatusOK, "settings", frame{Title: "Settings", Section: "settings", Body: body})
}

// maxListed bounds the people and the tokens that are listed.
const maxListed = 1000

// people returns those who have logged in or have a role, as far as the person may see them.
func (s *server) people(v *visit) (all []manage.Somebody, err error) {
	for after := ""; len(all) < maxListed; after = all[len(all)-1].ID {
		some, err := s.Manager.People(v.r.Context(), v.who, after, adminapi.MaxLimit)
		if err != nil {
			return nil, err
		}
		if all = append(all, some.People...); len(some.People) < adminapi.MaxLimit {
			break
		}
	}
	return all, nil
}

// tokens returns the tokens that the person may see.
func (s *server) tokens(v *visit) (all []manage.Token, err error) {
	for after := int64(0); len(all) < maxListed; after = all[len(all)-1].ID {
		some, err := s.Manager.Tokens(v.r.Context(), v.who, after, adminapi.MaxLimit)
		if err != nil {
			return nil, err
		}
		if all = append(all, some.Tokens...); len(some.Tokens) < adminapi.MaxLimit {
			break
		}
	}
	return all, nil
}

// makeToken makes a token, and shows its secret once.
func (s *server) makeToken(v *visit) error {
	made, err := s.Manager.MakeToken(v.r.Context(), v.who, manage.NewToken{
		Name: strings.TrimSpace(v.r.PostForm.Get("name")), Apps: wordsOf(v.r.PostForm.Get("apps")),
		Role: v.r.PostForm.Get("role"), Days: int(numberIn(v.r, "days")),
	}, v.reasonOf())
	if err != nil {
		return s.afterSetting(v, "", err)
	}
	return s.showSettings(v, made, "", "")
}

// endToken ends a token.
func (s *server) endToken(v *visit) error {
	return s.afterSetting(v, "The token has ended.",
		s.Manager.DeleteToken(v.r.Context(), v.who, numberIn(v.r, "token"), v.reasonOf()))
}

// somebody puts a person out, lets them in again, or ends their sessions.
func (s *server) somebody(v *visit) error {
	ctx, id, reason := v.r.Context(), v.r.PostForm.Get("person"), v.reasonOf()
	switch v.r.PostForm.Get("what") {
	case "bar":
		return s.afterSetting(v, "They can no longer log in, and their tokens are refused.",
			s.Manager.Bar(ctx, v.who, id, true, reason))
	case "admit":
		return s.afterSetting(v, "They may log in again.", s.Manager.Bar(ctx, v.who, id, false, reason))
	}
	return s.afterSetting(v, "All their sessions have ended.", s.Manager.EndSessions(ctx, v.who, id, reason))
}

// addApp makes an app known.
func (s *server) addApp(v *visit) error {
	app := strings.TrimSpace(v.r.PostForm.Get("app"))
	_, err := s.Manager.PutApp(v.r.Context(), v.who, app, adminapi.Settings{}, manage.Write{Create: true, Reason: v.reasonOf()})
	if err != nil {
		return s.afterSetting(v, "", err)
	}
	v.goTo(pathTo("settings", "apps", app))
	return nil
}

func (s *server) afterSetting(v *visit, done string, err error) error {
	if err == nil {
		return s.showSettings(v, nil, done, "")
	}
	if text, ok := refusedBy(err); ok {
		return s.showSettings(v, nil, "", text)
	}
	return err
}

// refusedBy returns what a person is shown of a change that they can mend, or that others were faster with.
func refusedBy(err error) (text string, ok bool) {
	switch p := manage.Problem(err); p.Status {
	case http.StatusPreconditionFailed, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusForbidden,
		http.StatusNotImplemented:
		return wrongOf(p)[0].Message, true
	}
	return "", false
}

// wordsOf splits a list at commas and spaces.
func wordsOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' })
}

// maxOffered bounds the people that a field offers while one types: any other id may be typed.
const maxOffered = 200

// appSettingsBody is the screen of an app's settings and of the rights on it. "*" has rights alone.
type appSettingsBody struct {
	App        manage.App
	Name       string
	All        bool // it is "*"
	Form       adminapi.Settings
	Typed      bool // somebody has typed Form and Counts
	Counts     string
	MayCounts  bool
	MayDelete  bool
	Grants     []manage.Grant
	GrantRows  rows
	GrantsAt   int64
	NoGrants   string
	People     []manage.Somebody
	Ways       []string
	Ends       []end
	Reasons    []string
	Review     bool // Form is shown before it is written, and Reviewed has what it changes
	Reviewed   []line
	Done       string
	Problem    string
	ProposalID string
}

// appSettings shows the settings of an app.
func (s *server) appSettings(v *visit) error { return s.showAppSettings(v, &appSettingsBody{}) }

func (s *server) showAppSettings(v *visit, body *appSettingsBody) error {
	ctx := v.r.Context()
	body.Name, body.All = v.app, v.app == rights.AllApps
	body.Ways, body.Reasons = roles, reasonsOfRights
	if body.All {
		body.Ways = append(slices.Clone(roles), rights.Admin.String())
	}
	body.Ends = endsFor(true)
	for i := range body.Ends {
		body.Ends[i].Chosen = body.Ends[i].Value == "never"
	}
	if !body.All {
		app, err := s.Manager.App(ctx, v.who, v.app)
		if err != nil {
			return err
		}
		if !v.may(rights.ActionSettings) {
			return &manage.RightError{Verdict: rights.Forbidden, Action: rights.ActionSettings, App: v.app}
		}
		body.App = app.App
		if !body.Typed {
			body.Form = app.Settings
			body.Counts = strings.Join(app.Settings.Counts, ", ")
		}
		if body.Review { // against the revision that the form then has
			body.Reviewed = changed(differenceOf(settingsEntries(app.Settings), settingsEntries(body.Form)))
		}
		body.MayCounts, body.MayDelete = v.may(rights.ActionAddApp), v.may(rights.ActionDeleteApp)
	}
	grants, revision, err := s.Manager.Grants(ctx, v.who, v.app)
	switch {
	case err == nil:
		body.Grants, body.GrantsAt = grants.Grants, revision
	case errors.As(err, new(*manage.RightError)):
		return err
	default:
		body.NoGrants = s.gap(v, err)
	}
	if people, err := s.people(v); err == nil {
		body.People = people[:min(len(people), maxOffered)]
	}
	body.GrantRows = v.rowsOf(pathTo("settings", "apps", v.app), "rights", len(body.Grants), maxRows)
	body.Grants = body.Grants[body.GrantRows.From:body.GrantRows.To]
	title := "Settings of " + v.app
	if body.All {
		title = "Rights on all apps"
	}
	return s.show(v, http.StatusOK, "app-settings", frame{Title: title, Section: "settings", Body: body})
}

// putSettings shows what the settings of a form would change, and writes them when that was seen.
func (s *server) putSettings(v *visit) error {
	ctx, form := v.r.Context(), v.r.PostForm
	now, err := s.Manager.Settings(ctx, v.who, v.app)
	if err != nil {
		return err
	}
	settings := adminapi.Settings{
		Title: strings.TrimSpace(form.Get("title")), FourEyes: form.Get("four-eyes") != "",
		KeptBy: strings.TrimSpace(form.Get("kept-by")), Counts: now.Counts,
	}
	if v.may(rights.ActionAddApp) {
		settings.Counts = wordsOf(form.Get("counts"))
	}
	if settings.KeptByToken, err = tokenIn(form.Get("kept-by-token")); err != nil {
		return s.showAppSettings(v, &appSettingsBody{
			Problem: err.Error(), Typed: true, Form: settings, Counts: strings.Join(settings.Counts, ", "),
		})
	}
	revision := numberIn(v.r, "revision")
	if what := form.Get("what"); what != "write" {
		return s.showAppSettings(v, &appSettingsBody{
			Review: what != "edit", Typed: true, Form: settings, Counts: strings.Join(settings.Counts, ", "),
		})
	}
	written, err := s.Manager.PutApp(ctx, v.who, v.app, settings,
		manage.Write{Revision: revision, Create: revision == 0, Reason: v.reasonOf()})
	done := "The settings hold now."
	if err == nil && written.Proposal != "" {
		done = "The change waits for another owner."
	}
	if err == nil {
		return s.showAppSettings(v, &appSettingsBody{Done: done})
	}
	text, ok := refusedBy(err)
	if !ok {
		return err
	}
	return s.showAppSettings(v, &appSettingsBody{ // what was typed is still there, against what holds now
		Problem: text, Review: true, Typed: true, Form: settings, Counts: strings.Join(settings.Counts, ", "),
	})
}

// putGrant gives one right more, or takes one away. The list is the one that was seen: with another one the change is
// refused.
func (s *server) putGrant(v *visit) error {
	ctx, form := v.r.Context(), v.r.PostForm
	now, revision, err := s.Manager.Grants(ctx, v.who, v.app)
	if err != nil {
		return err
	}
	of := manage.Grant{
		Kind: form.Get("kind"), Subject: strings.TrimSpace(form.Get("subject")), Role: form.Get("role"), Ends: v.endOf(),
	}
	list := slices.DeleteFunc(slices.Clone(now.Grants), func(g manage.Grant) bool { return g.Kind == of.Kind && g.Subject == of.Subject })
	done := fmt.Sprintf("%s has no right here any more.", of.Subject)
	if form.Get("what") == "give" {
		list, done = append(list, of), fmt.Sprintf("%s is %s now.", of.Subject, of.Role)
	} else if len(list) == len(now.Grants) {
		return s.afterAppSetting(v, "", &adminapi.Problem{
			Status: http.StatusConflict, Title: "Conflict", Detail: "There is no such right any more. These are the rights now.",
		})
	}
	if seen := numberIn(v.r, "revision"); seen != revision {
		return s.afterAppSetting(v, "", &adminapi.Problem{
			Status: http.StatusPreconditionFailed, Title: "Precondition Failed",
			Detail: "Somebody has changed the rights meanwhile. These are the rights now: look, and do it again.",
		})
	}
	w := manage.Write{Revision: revision, Create: revision == 0, Reason: v.reasonOf()}
	out, _, err := s.Manager.PutGrants(ctx, v.who, v.app, list, w)
	if err == nil && out.Proposal != "" {
		done = "The change waits for another owner."
	}
	return s.afterAppSetting(v, done, err)
}

// deleteApp deletes an app.
func (s *server) deleteApp(v *visit) error {
	revision := numberIn(v.r, "revision") // 0 of settings that were never written
	_, err := s.Manager.DeleteApp(v.r.Context(), v.who, v.app,
		manage.Write{Revision: revision, Create: revision == 0, Reason: v.reasonOf()})
	if err != nil {
		return s.afterAppSetting(v, "", err)
	}
	v.goTo("/settings")
	return nil
}

func (s *server) afterAppSetting(v *visit, done string, err error) error {
	if err == nil {
		return s.showAppSettings(v, &appSettingsBody{Done: done})
	}
	if text, ok := refusedBy(err); ok {
		return s.showAppSettings(v, &appSettingsBody{Problem: text})
	}
	return err
}

// settingsEntries returns the lines of settings by names that sort as they are shown.
func settingsEntries(s adminapi.Settings) map[string]string {
	all := map[string]string{}
	add := func(name, text string) {
		if text != "" {
			all[name] = text
		}
	}
	if s.Title != "" {
		add("0", "title: "+s.Title)
	}
	if s.FourEyes {
		add("1", "another owner approves each change")
	}
	if s.KeptBy != "" {
		add("2", "kept in files: "+s.KeptBy)
	}
	if s.KeptByToken != 0 {
		add("3", "written by token "+strconv.FormatInt(s.KeptByToken, 10))
	}
	for _, prefix := range s.Counts {
		add("4"+prefix, "counts under the prefix "+prefix)
	}
	return all
}

// settingsLines lists settings.
func settingsLines(s adminapi.Settings) []line {
	return differenceOf(nil, settingsEntries(s))
}

// grantLine returns a right in words.
func grantLine(g manage.Grant) string {
	text := g.Kind + " " + g.Subject
	if g.Name != "" {
		text = g.Name + " (" + text + ")"
	}
	text += " is " + g.Role
	if !g.Ends.IsZero() {
		text += " until " + stamp(g.Ends.Truncate(time.Minute))
	}
	return text
}
