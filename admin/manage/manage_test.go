package manage_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// admin is a Manager with a database, people, processes that a test writes down, and a clock that it sets.
type admin struct {
	*manage.Manager
	t      *testing.T
	record *record.Record
	people *people.People

	mu        sync.Mutex
	at        time.Time
	processes map[string][]*policies.Process
}

// unpublished publishes nothing, at once.
type unpublished struct{}

func (unpublished) Wake() {}

func (unpublished) Wait(_ context.Context, _ string, v policies.Version) publish.State {
	return publish.State{Version: v}
}

func (unpublished) State(string) publish.State { return publish.State{} }

func start(t *testing.T, location string, mods ...func(*manage.Options)) *admin {
	t.Helper()
	// The clock begins with the time of the test, since people compare some ends with that of the machine.
	a := &admin{t: t, at: time.Now().Truncate(time.Second), processes: map[string][]*policies.Process{}}
	db := sqltest.Open(t, location)
	log := audit.New(db, audit.Options{Now: a.now})
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	a.record = record.New(db, log)
	var err error
	a.people, err = people.New(t.Context(), people.Options{DB: db, Audit: log, PublicURL: "http://127.0.0.1:1", Now: a.now})
	require.NoError(t, err)
	options := manage.Options{
		Record: a.record, Audit: log, People: a.people, Publisher: unpublished{}, Now: a.now,
		Services: func(_ context.Context, app string) ([]*policies.Process, int, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.processes[app], 0, nil
		},
	}
	for _, mod := range mods {
		mod(&options)
	}
	a.Manager, err = manage.New(options)
	require.NoError(t, err)
	return a
}

func (a *admin) now() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at
}

func (a *admin) sleep(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = a.at.Add(d)
}

// announce lets a process of the app "pay" announce a policy of its code.
func (a *admin) announce(policy, code string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.processes["pay"] = append(a.processes["pay"], &policies.Process{
		ID: policy + code, Rules: []policies.RuleState{{Policy: policy, Code: code, Now: code, Meaning: policies.Code}},
	})
}

// person returns somebody with a role in apps, who is known.
func (a *admin) person(name string, role rights.Role, apps ...string) *rights.Person {
	a.t.Helper()
	p := &rights.Person{ID: "local:" + name, Name: name, Roles: map[string]rights.Role{}, Admin: role == rights.Admin}
	if p.Admin {
		apps = []string{rights.AllApps}
	}
	for _, app := range apps {
		p.Roles[app] = role
		_, err := a.people.MakeLink(a.t.Context(), people.By{Person: people.Console(), Reason: "for a test"},
			people.LocalPerson{Name: name, Role: role, App: app})
		require.NoError(a.t, err)
	}
	return p
}

// token returns the person of a token that an owner has made.
func (a *admin) token(owner *rights.Person, apps ...string) *rights.Person {
	a.t.Helper()
	made, err := a.MakeToken(a.t.Context(), owner, manage.NewToken{Name: "pipeline", Apps: apps, Role: "owner", Days: 365}, "for a test")
	require.NoError(a.t, err)
	return &rights.Person{ID: owner.ID, Name: owner.Name, Roles: owner.Roles, Token: made.ID}
}

// status returns that of the problem that an error is, 0 if it is nil.
func status(err error) int {
	if err == nil {
		return 0
	}
	return manage.Problem(err).Status
}

func text(s string) adminapi.Policy { return adminapi.Policy{Text: s} }

// at is a Write of what was read at a revision.
func at(revision int64) manage.Write { return manage.Write{Revision: revision, Reason: "because"} }

var (
	anyway = manage.Write{Any: true, Reason: "because"}
	create = manage.Write{Create: true, Reason: "because"}
)

// Operators help one caller, or change numbers, for a week at most; owners as they like.
func TestOperators(t *testing.T) { sqltest.Each(t, operators) }

func operators(t *testing.T, location string) {
	a, ctx := start(t, location), t.Context()
	owner, operator := a.person("anna", rights.Owner, "pay"), a.person("ben", rights.Operator, "pay")
	viewer, stranger := a.person("eva", rights.Viewer, "pay"), a.person("max", rights.Owner, "shop")
	a.announce("search", "50/1m; fail closed")
	written, err := a.PutPolicy(ctx, owner, "pay", "api", text("100/1m"), create)
	require.NoError(t, err)
	first := written.PolicyRevision

	hour := a.now().Add(time.Hour)
	block := manage.KeyNumbers{Key: "user=7", Text: "blocked", Until: hour}
	for _, one := range []struct {
		who  *rights.Person
		want int
	}{
		{viewer, http.StatusForbidden},
		{stranger, http.StatusNotFound},
		{operator, 0},
		{owner, http.StatusPreconditionFailed}, // after somebody else
	} {
		_, err := a.PutKey(ctx, one.who, "pay", "api", block, at(first))
		if one.who == owner && err == nil {
			continue // the key is as it was
		}
		assert.Equal(t, one.want, status(err), one.who.Name)
	}
	held, err := a.Policy(ctx, operator, "pay", "api")
	require.NoError(t, err)
	require.Len(t, held.Temporary, 1)
	assert.Equal(t, "blocked", held.Policy.Keys["user=7"])
	held, err = a.Policy(ctx, viewer, "pay", "api")
	require.NoError(t, err)
	assert.Empty(t, held.Temporary, "keys are persons")

	for what, k := range map[string]manage.KeyNumbers{
		"no end":    {Key: "user=8", Text: "blocked"},
		"too long":  {Key: "user=8", Text: "blocked", Until: a.now().Add(8 * 24 * time.Hour)},
		"over":      {Key: "user=8", Text: "blocked", Until: a.now()},
		"unlimited": {Key: "user=8", Text: "unlimited", Until: hour},
		"no key":    {Text: "blocked", Until: hour},
	} {
		_, err := a.PutKey(ctx, operator, "pay", "api", k, anyway)
		assert.Contains(t, []int{http.StatusForbidden, http.StatusUnprocessableEntity}, status(err), what)
	}
	_, err = a.PutKey(ctx, owner, "pay", "api", manage.KeyNumbers{Key: "user=9", Text: "unlimited"}, at(first))
	require.NoError(t, err, "another key was read as it is")
	_, err = a.PutKey(ctx, owner, "pay", "api", manage.KeyNumbers{Key: "user=9", Text: "1/1m"}, at(first))
	assert.Equal(t, http.StatusPreconditionFailed, status(err))
	_, err = a.PutKey(ctx, operator, "pay", "api", manage.KeyNumbers{Key: "user=9"}, anyway)
	assert.Equal(t, http.StatusForbidden, status(err), "an owner's numbers")
	_, err = a.PutKey(ctx, operator, "pay", "api", manage.KeyNumbers{Key: "user=7"}, anyway)
	require.NoError(t, err, "what an operator did")
	held, err = a.Policy(ctx, owner, "pay", "api")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"user=9": "unlimited"}, held.Policy.Keys)

	on := true
	trial := manage.Temporary{Trial: &on, Until: hour}
	_, err = a.SetTemporary(ctx, operator, "pay", "search", trial, create)
	require.NoError(t, err, "the record has none, and the code says the numbers")
	held, err = a.Policy(ctx, owner, "pay", "search")
	require.NoError(t, err)
	assert.Equal(t, "50/1m; fail closed; shadow", held.Policy.Text)
	_, err = a.SetTemporary(ctx, operator, "pay", "api", manage.Temporary{Text: "200/1m", Until: hour}, anyway)
	require.NoError(t, err)
	for _, s := range []string{"200/1m; epoch 1", "200/1h", "200/1m fixed-window", "200/1m; fail open"} {
		_, err = a.SetTemporary(ctx, operator, "pay", "api", manage.Temporary{Text: s, Until: hour}, anyway)
		assert.Equal(t, http.StatusUnprocessableEntity, status(err), s)
	}
	_, err = a.Trial(ctx, operator, "pay", "api", true, time.Time{}, anyway)
	assert.Equal(t, http.StatusForbidden, status(err))
	_, err = a.EndTemporary(ctx, operator, "pay", "api", anyway)
	require.NoError(t, err)
	_, err = a.EndTemporary(ctx, operator, "pay", "api", anyway)
	assert.Equal(t, http.StatusNotFound, status(err))

	// What an owner has written for more than a week is not an operator's to end.
	for _, until := range []time.Duration{30 * 24 * time.Hour, time.Hour} {
		_, err = a.SetTemporary(ctx, owner, "pay", "api", manage.Temporary{Text: "200/1m", Until: a.now().Add(until)}, anyway)
		require.NoError(t, err)
		block.Key, block.Until = "user=10", a.now().Add(until)
		_, err = a.PutKey(ctx, owner, "pay", "api", block, anyway)
		require.NoError(t, err)
		want := 0
		if until > time.Hour {
			want = http.StatusUnprocessableEntity
		}
		_, err = a.EndTemporary(ctx, operator, "pay", "api", anyway)
		assert.Equal(t, want, status(err))
		_, err = a.PutKey(ctx, operator, "pay", "api", manage.KeyNumbers{Key: "user=10"}, anyway)
		assert.Equal(t, want, status(err))
	}
	a.sleep(time.Hour)
	_, err = a.record.EndDue(ctx)
	require.NoError(t, err)
	_, err = a.Policy(ctx, owner, "pay", "search")
	assert.Equal(t, http.StatusNotFound, status(err), "the code's holds again")
}

// A policy that another app uses is an operator's only with the right there, and an owner's for long only with both.
func TestTemporaryOfASharedPolicy(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	both := a.person("anna", rights.Owner, "pay", "shop")
	half := a.person("ben", rights.Owner, "pay")
	_, err := a.PutPolicy(ctx, both, "pay", "api", adminapi.Policy{Text: "100/1m", Apps: []string{"shop"}}, create)
	require.NoError(t, err)
	block := manage.KeyNumbers{Key: "user=7", Text: "blocked", Until: a.now().Add(30 * 24 * time.Hour)}
	_, err = a.PutKey(ctx, half, "pay", "api", block, anyway)
	assert.Equal(t, http.StatusUnprocessableEntity, status(err), "an operator's term")
	block.Until = a.now().Add(time.Hour)
	_, err = a.PutKey(ctx, half, "pay", "api", block, anyway)
	assert.Equal(t, http.StatusForbidden, status(err))
	helper := a.person("eva", rights.Operator, "pay", "shop")
	_, err = a.PutKey(ctx, helper, "pay", "api", block, anyway)
	require.NoError(t, err)
	block.Until = a.now().Add(30 * 24 * time.Hour)
	_, err = a.PutKey(ctx, both, "pay", "api", block, anyway)
	require.NoError(t, err)
}

// Where an app asks for four eyes, no owner changes it alone, by whatever way.
func TestFourEyes(t *testing.T) { sqltest.Each(t, fourEyes) }

func fourEyes(t *testing.T, location string) {
	a, ctx := start(t, location), t.Context()
	root := a.person("root", rights.Admin)
	anna, ben := a.person("anna", rights.Owner, "pay"), a.person("ben", rights.Owner, "pay")
	viewer := a.person("eva", rights.Viewer, "pay")
	token := *anna
	token.Token = 7
	_, err := a.PutApp(ctx, root, "pay", adminapi.Settings{Title: "Payments", FourEyes: true}, create)
	require.NoError(t, err)

	written, err := a.PutPolicy(ctx, anna, "pay", "api", text("100/1m"), create)
	require.NoError(t, err)
	require.NotEmpty(t, written.Proposal)
	_, err = a.Policy(ctx, anna, "pay", "api")
	assert.Equal(t, http.StatusNotFound, status(err))
	list, err := a.Proposals(ctx, viewer, manage.WhichProposals{State: "open"})
	require.NoError(t, err)
	require.Len(t, list.Proposals, 1)
	assert.Equal(t, "100/1m", list.Proposals[0].Differences[0].After.Text)
	assert.False(t, list.Proposals[0].MayApprove)
	list, err = a.Proposals(ctx, ben, manage.WhichProposals{App: "pay"})
	require.NoError(t, err)
	assert.True(t, list.Proposals[0].MayApprove)
	list, err = a.Proposals(ctx, a.person("max", rights.Owner, "shop"), manage.WhichProposals{})
	require.NoError(t, err)
	assert.Empty(t, list.Proposals)

	for who, want := range map[*rights.Person]int{
		anna: http.StatusConflict, &token: http.StatusConflict, viewer: http.StatusForbidden,
		{ID: "local:max", Roles: map[string]rights.Role{"shop": rights.Owner}}: http.StatusNotFound,
	} {
		_, err := a.Approve(ctx, who, written.Proposal, "fine")
		if who == &token { // which has ended
			assert.NotZero(t, status(err))
			continue
		}
		assert.Equal(t, want, status(err), who.ID)
	}
	_, err = a.Approve(ctx, ben, written.Proposal, " ")
	assert.Equal(t, http.StatusUnprocessableEntity, status(err))
	_, err = a.Approve(ctx, ben, "nonsense", "fine")
	assert.Equal(t, http.StatusNotFound, status(err))
	done, err := a.Approve(ctx, ben, written.Proposal, "fine")
	require.NoError(t, err)
	assert.Len(t, done.Differences, 1)
	held, err := a.Policy(ctx, anna, "pay", "api")
	require.NoError(t, err)
	assert.Equal(t, "100/1m", held.Policy.Text)

	// Neither the setting nor the rights are a way around.
	written, err = a.PutApp(ctx, anna, "pay", adminapi.Settings{Title: "Payments"}, anyway)
	require.NoError(t, err)
	require.NotEmpty(t, written.Proposal)
	require.NoError(t, a.Reject(ctx, ben, written.Proposal, "no"))
	grants, revision, err := a.Grants(ctx, anna, "pay")
	require.NoError(t, err)
	more := append(grants.Grants, manage.Grant{Kind: "group", Subject: "friends", Role: "owner"})
	proposed, _, err := a.PutGrants(ctx, anna, "pay", more, at(revision))
	require.NoError(t, err)
	require.NotEmpty(t, proposed.Proposal)
	after, _, err := a.Grants(ctx, anna, "pay")
	require.NoError(t, err)
	assert.Len(t, after.Grants, len(grants.Grants))
	_, err = a.Approve(ctx, ben, proposed.Proposal, "fine")
	require.NoError(t, err)
	after, _, err = a.Grants(ctx, anna, "pay")
	require.NoError(t, err)
	assert.Len(t, after.Grants, len(more))

	// A proposal of somebody who is no owner any more has ended.
	written, err = a.DeletePolicy(ctx, anna, "pay", "api", at(held.Revision))
	require.NoError(t, err)
	grants, revision, err = a.Grants(ctx, root, "pay")
	require.NoError(t, err)
	var left []manage.Grant
	for _, g := range grants.Grants {
		if g.Subject != anna.ID {
			left = append(left, g)
		}
	}
	_, _, err = a.PutGrants(ctx, root, "pay", left, at(revision))
	require.NoError(t, err)
	_, err = a.Approve(ctx, ben, written.Proposal, "fine")
	assert.Equal(t, http.StatusConflict, status(err))
	list, err = a.Proposals(ctx, ben, manage.WhichProposals{App: "pay", State: "ended"})
	require.NoError(t, err)
	require.Len(t, list.Proposals, 1)

	// An emergency is marked until somebody else has looked.
	emergency := at(held.Revision)
	emergency.Emergency = true
	written, err = a.PutPolicy(ctx, ben, "pay", "api", text("1/1m"), emergency)
	require.NoError(t, err)
	assert.Empty(t, written.Proposal)
	app, err := a.App(ctx, root, "pay")
	require.NoError(t, err)
	require.Len(t, app.Emergencies, 1)
	seq := app.Emergencies[0].Seq
	assert.Equal(t, http.StatusForbidden, status(a.Seen(ctx, ben, seq, "")))
	assert.Equal(t, http.StatusForbidden, status(a.Seen(ctx, viewer, seq, "")))
	require.NoError(t, a.Seen(ctx, root, seq, "the incident of Monday"))
	rows, err := a.Audit(ctx, root, manage.WhichAudit{App: "pay", Action: "seen"})
	require.NoError(t, err)
	require.Len(t, rows.Rows, 1)
	assert.Equal(t, "the incident of Monday", rows.Rows[0].Reason)
	app, err = a.App(ctx, root, "pay")
	require.NoError(t, err)
	assert.Empty(t, app.Emergencies)
}

// An app that is kept by files is written by these, and its pages say where.
func TestKeptByFiles(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root, anna := a.person("root", rights.Admin), a.person("anna", rights.Owner, "pay")
	pipeline, other := a.token(anna, "pay"), a.token(anna, "pay")
	kept := adminapi.Settings{KeptBy: "git.example/limits", KeptByToken: pipeline.Token, FourEyes: true}
	_, err := a.PutApp(ctx, root, "pay", kept, create)
	require.NoError(t, err)
	_, err = a.PutPolicy(ctx, anna, "pay", "api", text("1/1m"), create)
	assert.Equal(t, http.StatusConflict, status(err))
	assert.ErrorContains(t, err, "git.example/limits")
	file := []byte(`{"format": 1, "app": "pay", "policies": {"api": {"text": "100/1m"}}}`)
	_, err = a.Apply(ctx, anna, file, false, false, anyway)
	assert.Equal(t, http.StatusConflict, status(err), "a person has no files")
	written, err := a.Apply(ctx, pipeline, file, false, false, anyway)
	require.NoError(t, err)
	assert.Empty(t, written.Proposal)
	assert.Len(t, written.Differences, 1)
	written, err = a.Apply(ctx, other, []byte(`{"format": 1, "app": "pay", "policies": {"api": {"text": "200/1m"}}}`), false, false, anyway)
	require.NoError(t, err)
	assert.NotEmpty(t, written.Proposal)
	_, err = a.PutKey(ctx, anna, "pay", "api", manage.KeyNumbers{Key: "user=7", Text: "blocked", Until: a.now().Add(time.Hour)}, anyway)
	require.NoError(t, err)
	written, err = a.Apply(ctx, pipeline, []byte(`{"format": 1, "app": "pay", "policies": {"api": {"text": "100/1m", "keys": {"user=7": "5/1m"}}}}`),
		false, true, anyway)
	require.NoError(t, err)
	require.Len(t, written.Beneath, 1)
	assert.Equal(t, "5/1m", written.Beneath[0].Former)
	app, err := a.App(ctx, anna, "pay")
	require.NoError(t, err)
	assert.Equal(t, "git.example/limits", app.Settings.KeptBy)
	assert.Equal(t, 1, app.Proposals)
}

// An app is deleted with its rights, once nothing runs of it, and comes back with its history.
func TestDeleteApp(t *testing.T) { sqltest.Each(t, deleteApp) }

func deleteApp(t *testing.T, location string) {
	a, ctx := start(t, location), t.Context()
	root, anna := a.person("root", rights.Admin), a.person("anna", rights.Owner, "pay")
	_, err := a.PutApp(ctx, anna, "pay", adminapi.Settings{}, create)
	assert.Equal(t, http.StatusForbidden, status(err), "an app is an admin's to add")
	written, err := a.PutApp(ctx, root, "pay", adminapi.Settings{Counts: []string{"pay"}}, create)
	require.NoError(t, err)
	_, err = a.PutApp(ctx, anna, "pay", adminapi.Settings{Title: "Mine", Counts: []string{"pay", "shop"}}, at(written.SettingsRevision))
	assert.Equal(t, http.StatusForbidden, status(err), "prefixes are an admin's")
	_, err = a.PutApp(ctx, anna, "pay", adminapi.Settings{Title: "Mine", Counts: []string{"pay"}}, at(written.SettingsRevision))
	require.NoError(t, err)
	_, err = a.PutApp(ctx, anna, "pay", adminapi.Settings{Title: "Again", Counts: []string{"pay"}}, at(written.SettingsRevision))
	assert.Equal(t, http.StatusPreconditionFailed, status(err))
	_, err = a.PutApp(ctx, anna, "pay", adminapi.Settings{}, manage.Write{Reason: "because"})
	assert.Equal(t, http.StatusPreconditionRequired, status(err))
	_, err = a.PutPolicy(ctx, anna, "pay", "api", text("1/1m"), create)
	require.NoError(t, err)

	_, err = a.DeleteApp(ctx, anna, "pay", anyway)
	assert.Equal(t, http.StatusForbidden, status(err))
	a.announce("api", "1/1m")
	_, err = a.DeleteApp(ctx, root, "pay", anyway)
	assert.Equal(t, http.StatusConflict, status(err))
	a.processes = map[string][]*policies.Process{}
	a.sleep(time.Minute)
	_, err = a.DeleteApp(ctx, root, "pay", at(written.SettingsRevision))
	assert.Equal(t, http.StatusPreconditionFailed, status(err))
	grants, _, err := a.Grants(ctx, root, "pay")
	require.NoError(t, err)
	assert.NotEmpty(t, grants.Grants, "nothing is half deleted")
	_, err = a.DeleteApp(ctx, root, "pay", anyway)
	require.NoError(t, err)
	grants, _, err = a.Grants(ctx, root, "pay")
	require.NoError(t, err)
	assert.Empty(t, grants.Grants)
	apps, err := a.Apps(ctx, root, "", 0)
	require.NoError(t, err)
	assert.Empty(t, apps.Apps)
	_, err = a.App(ctx, root, "pay")
	assert.Equal(t, http.StatusNotFound, status(err))
	_, err = a.PutApp(ctx, root, "pay", adminapi.Settings{}, create)
	require.NoError(t, err)
	history, err := a.History(ctx, root, "pay", "api", 0, 0)
	require.NoError(t, err)
	require.Len(t, history.Versions, 2)
	_, err = a.RollbackApp(ctx, root, "pay", history.Versions[1].Revision, false, anyway)
	require.NoError(t, err)
	held, err := a.Policy(ctx, root, "pay", "api")
	require.NoError(t, err)
	assert.Equal(t, "1/1m", held.Policy.Text)
	_, err = a.RollbackApp(ctx, root, "pay", 100_000, false, anyway)
	assert.Equal(t, http.StatusNotFound, status(err))
}

// A trial ends by the word that the code needs for it.
func TestTrialOfACodeOnTrial(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	anna := a.person("anna", rights.Owner, "pay")
	a.announce("api", "100/1m; shadow")
	a.announce("other", "100/1m")
	off := false
	for name, want := range map[string]string{"api": "100/1m; shadow off", "other": "100/1m"} {
		would, err := a.TrialOf(ctx, anna, "pay", name, false)
		require.NoError(t, err)
		assert.Equal(t, want, would)
	}
	_, err := a.TrialOf(ctx, a.person("eva", rights.Viewer, "pay"), "pay", "api", false)
	assert.Equal(t, http.StatusForbidden, status(err))
	_, err = a.SetTemporary(ctx, anna, "pay", "api", manage.Temporary{Trial: &off, Until: a.now().Add(time.Hour)}, create)
	require.NoError(t, err)
	held, err := a.Policy(ctx, anna, "pay", "api")
	require.NoError(t, err)
	assert.Equal(t, "100/1m; shadow off", held.Policy.Text)
	_, err = a.Trial(ctx, anna, "pay", "other", true, time.Time{}, create)
	require.NoError(t, err)
	written, err := a.Trial(ctx, anna, "pay", "other", false, time.Time{}, anyway)
	require.NoError(t, err)
	assert.Equal(t, "100/1m", written.Differences[0].After.Text)
}

// A limit that only the code has is taken over as it is.
func TestTakeOver(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	anna := a.person("anna", rights.Owner, "pay")
	a.announce("api", "api: 100/1m; fail closed")
	code, err := a.CodeOf(ctx, anna, "pay", "api")
	require.NoError(t, err)
	_, err = a.CodeOf(ctx, a.person("eva", rights.Viewer, "shop"), "pay", "api")
	assert.Equal(t, http.StatusNotFound, status(err))
	written, err := a.TakeOver(ctx, anna, "pay", "api", anyway)
	require.NoError(t, err)
	assert.Equal(t, "100/1m; fail closed", written.Differences[0].After.Text)
	assert.Equal(t, written.Differences[0].After, code)
	_, err = a.TakeOver(ctx, anna, "pay", "api", anyway)
	assert.Equal(t, http.StatusPreconditionFailed, status(err))
	a.announce("search", "10/1m")
	a.announce("search", "20/1m")
	a.sleep(time.Minute)
	_, err = a.TakeOver(ctx, anna, "pay", "search", anyway)
	assert.Equal(t, http.StatusConflict, status(err), "somebody has to choose")
}

// The audit of an app names no app that somebody may not see, and no key to those who may not look at keys.
func TestTheAuditNamesNoOther(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root, viewer := a.person("root", rights.Admin), a.person("vera", rights.Viewer, "pay", "web")
	p := text("100/1m")
	p.Apps = []string{"hidden", "web"}
	p.Keys = map[string]string{"user=7": "blocked"}
	_, err := a.PutPolicy(ctx, root, "pay", "api", p, create)
	require.NoError(t, err)
	for who, want := range map[*rights.Person]string{
		root:   `{"text":["","100/1m"],"apps":[null,["hidden","web"]],"keys":[0,1]}`,
		viewer: `{"text":["","100/1m"],"apps":[null,["web"]],"keys":[0,1]}`,
	} {
		rows, err := a.Audit(ctx, who, manage.WhichAudit{App: "pay", Policy: "api"})
		require.NoError(t, err)
		require.Len(t, rows.Rows, 1)
		assert.JSONEq(t, want, rows.Rows[0].Detail, who.Name)
	}
	all, err := a.Audit(ctx, viewer, manage.WhichAudit{})
	require.NoError(t, err)
	for _, r := range all.Rows {
		assert.Contains(t, []string{"pay", "web"}, r.App)
	}
}

// The settings of an app are there for the same people, and at the same times, as the rest of it.
func TestSettingsAreThoseOfTheApp(t *testing.T) {
	a := start(t, sqltest.New(t))
	root, viewer, stranger := a.person("root", rights.Admin), a.person("vera", rights.Viewer, "pay"), a.person("sid", rights.Owner, "shop")
	both := func(who *rights.Person, want int) (of adminapi.Settings) {
		t.Helper()
		view, err := a.App(t.Context(), who, "pay")
		assert.Equal(t, want, status(err), who.Name)
		if err == nil {
			of = view.Settings
		}
		light, err := a.Settings(t.Context(), who, "pay")
		assert.Equal(t, want, status(err), who.Name)
		assert.Equal(t, of, light)
		return of
	}
	for _, who := range []*rights.Person{root, viewer, stranger} {
		both(who, http.StatusNotFound)
	}
	a.announce("search", "10/1m") // nobody has made it known yet
	a.sleep(time.Minute)
	both(root, 0)
	both(viewer, http.StatusNotFound)
	_, err := a.PutApp(t.Context(), root, "pay", adminapi.Settings{Title: "Payments", FourEyes: true}, manage.Write{Create: true, Reason: "because"})
	require.NoError(t, err)
	assert.Equal(t, "Payments", both(root, 0).Title)
	assert.True(t, both(viewer, 0).FourEyes)
	both(stranger, http.StatusNotFound)
	a.mu.Lock()
	a.processes = map[string][]*policies.Process{}
	a.mu.Unlock()
	a.sleep(time.Minute)
	view, err := a.App(t.Context(), root, "pay")
	require.NoError(t, err)
	_, err = a.DeleteApp(t.Context(), root, "pay", at(view.SettingsRevision))
	require.NoError(t, err)
	a.announce("search", "10/1m") // it is started once more
	a.sleep(time.Minute)
	both(root, http.StatusNotFound)
	both(viewer, http.StatusNotFound)
}

// A preview that leaves rules out says so: processes that could not use the change may be among them.
func TestPreviewOfMoreRulesThanItHasRoomFor(t *testing.T) {
	a := start(t, sqltest.New(t))
	owner := a.person("anna", rights.Owner, "pay")
	_, err := a.PutPolicy(t.Context(), owner, "pay", "api", text("7/1h"), create)
	require.NoError(t, err)
	for i, more := range []int{0, 3} {
		for n := range 8 + more {
			a.announce("api", fmt.Sprintf("api: %d/1h", 1+n))
		}
		a.sleep(time.Minute)
		got, err := a.Preview(t.Context(), owner, "pay", "api", manage.AskPreview{Policy: text("9/1h")})
		require.NoError(t, err)
		assert.Equal(t, more, got.MoreRules, i)
	}
}
