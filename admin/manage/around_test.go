package manage_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// An owner of an app of four eyes finds no way around the other person: not by an emergency that ends four eyes, by the
// files of another app, by a change for a year, or by a right that was given for a day.
func TestAroundFourEyes(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root, anna := a.person("root", rights.Admin), a.person("anna", rights.Owner, "pay", "shop")
	_, err := a.PutApp(ctx, root, "pay", adminapi.Settings{FourEyes: true}, create)
	require.NoError(t, err)
	pipeline := a.token(anna, "pay", "shop")
	_, err = a.PutApp(ctx, root, "shop", adminapi.Settings{KeptBy: "git.example/limits", KeptByToken: pipeline.Token}, create)
	require.NoError(t, err)
	_, err = a.PutPolicy(ctx, root, "pay", "api", text("100/1m"), manage.Write{Create: true, Emergency: true, Reason: "the first"})
	require.NoError(t, err)
	emergency := manage.Write{Any: true, Emergency: true, Reason: "nobody is here"}

	written, err := a.PutApp(ctx, anna, "pay", adminapi.Settings{}, emergency)
	require.NoError(t, err)
	assert.NotEmpty(t, written.Proposal, "an emergency that ends four eyes")

	file := []byte(`{"format": 1, "app": "shop", "policies": {"lent": {"text": "100/1m", "apps": ["pay"]}}}`)
	written, err = a.Apply(ctx, pipeline, file, false, false, anyway)
	require.NoError(t, err)
	assert.NotEmpty(t, written.Proposal, "the files of another app")
	written, err = a.Apply(ctx, pipeline, []byte(`{"format": 1, "app": "shop", "policies": {"own": {"text": "100/1m"}}}`), false, false, anyway)
	require.NoError(t, err)
	assert.Empty(t, written.Proposal)

	hour, month := a.now().Add(time.Hour), a.now().Add(30*24*time.Hour)
	for _, c := range []manage.Temporary{{Text: "5000/1m", Until: month}, {Text: "5000/1s; algorithm fixed-window", Until: hour}} {
		_, err = a.SetTemporary(ctx, anna, "pay", "api", c, anyway)
		assert.Equal(t, http.StatusUnprocessableEntity, status(err), "%+v: %v", c, err)
	}
	_, err = a.PutKey(ctx, anna, "pay", "api", manage.KeyNumbers{Key: "user=7", Text: "unlimited", Until: hour}, anyway)
	assert.Equal(t, http.StatusUnprocessableEntity, status(err))
	_, err = a.SetTemporary(ctx, anna, "pay", "api", manage.Temporary{Text: "200/1m", Until: hour}, anyway)
	require.NoError(t, err)
	_, err = a.PutKey(ctx, anna, "pay", "api", manage.KeyNumbers{Key: "user=7", Text: "unlimited", Until: month}, emergency)
	require.NoError(t, err)

	grants, revision, err := a.Grants(ctx, root, "pay")
	require.NoError(t, err)
	lent := append(grants.Grants, manage.Grant{Kind: "person", Subject: a.person("ben", rights.Viewer, "shop").ID, Role: "owner", Ends: hour})
	_, _, err = a.PutGrants(ctx, root, "pay", lent, at(revision))
	require.NoError(t, err)
	lent[len(lent)-1].Ends = hour.Add(-time.Minute)
	proposed, _, err := a.PutGrants(ctx, anna, "pay", lent, anyway)
	require.NoError(t, err)
	assert.Empty(t, proposed.Proposal, "a right that ends earlier")
	for _, ends := range []time.Time{{}, month} {
		lent[len(lent)-1].Ends = ends
		proposed, _, err = a.PutGrants(ctx, anna, "pay", lent, anyway)
		require.NoError(t, err)
		assert.NotEmpty(t, proposed.Proposal, "a right that ends at %s", ends)
	}
}

// Nobody who changes a policy that a hidden app lends theirs reads the name of that app.
func TestChangesNameNoOther(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root, anna := a.person("root", rights.Admin), a.person("anna", rights.Owner, "pay")
	_, err := a.PutPolicy(ctx, root, "secret", "lent", adminapi.Policy{Text: "1/1m", Apps: []string{"pay"}}, create)
	require.NoError(t, err)
	week := a.now().Add(time.Hour)
	for name, do := range map[string]func() error{
		"trial":     func() error { _, err := a.Trial(ctx, anna, "pay", "lent", true, time.Time{}, anyway); return err },
		"trial for": func() error { _, err := a.Trial(ctx, anna, "pay", "lent", true, week, anyway); return err },
		"put":       func() error { _, err := a.PutPolicy(ctx, anna, "pay", "lent", text("2/1m"), anyway); return err },
		"delete":    func() error { _, err := a.DeletePolicy(ctx, anna, "pay", "lent", at(1)); return err },
		"rollback":  func() error { _, err := a.Rollback(ctx, anna, "pay", "lent", 1, anyway); return err },
		"temporary": func() error {
			_, err := a.SetTemporary(ctx, anna, "pay", "lent", manage.Temporary{Text: "2/1m", Until: week}, anyway)
			return err
		},
		"key": func() error {
			_, err := a.PutKey(ctx, anna, "pay", "lent", manage.KeyNumbers{Key: "user=7", Text: "blocked", Until: week}, anyway)
			return err
		},
		"keys":   func() error { _, _, err := a.Keys(ctx, anna, "pay", "lent"); return err },
		"policy": func() error { _, err := a.Policy(ctx, anna, "pay", "lent"); return err },
	} {
		err := do()
		require.Error(t, err, name)
		assert.NotContains(t, manage.Problem(err).Detail, "secret", name)
	}
}

// Grants on the condition of a revision that there never was are not written on no condition.
func TestGrantsOfNoRevision(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root := a.person("root", rights.Admin)
	a.person("anna", rights.Owner, "pay")
	_, _, err := a.PutGrants(ctx, root, "pay", nil, at(manage.NoRevision))
	assert.Equal(t, http.StatusPreconditionFailed, status(err))
	grants, _, err := a.Grants(ctx, root, "pay")
	require.NoError(t, err)
	assert.Len(t, grants.Grants, 1)
}

// A token does not do to its maker what its rights do not give it: end other tokens.
func TestTokenAgainstItsMaker(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	anna := a.person("anna", rights.Owner, "pay")
	made := map[string]*rights.Person{}
	for _, role := range []string{"viewer", "owner"} {
		token, err := a.MakeToken(ctx, anna, manage.NewToken{Name: role, Apps: []string{"pay"}, Role: role, Days: 1}, "because")
		require.NoError(t, err)
		as, err := rights.ParseRole(role)
		require.NoError(t, err)
		made[role] = &rights.Person{ID: anna.ID, Name: role, Roles: map[string]rights.Role{"pay": as}, Token: token.ID}
	}
	assert.Equal(t, http.StatusForbidden, status(a.DeleteToken(ctx, made["viewer"], made["owner"].Token, "because")))
	left, err := a.Tokens(ctx, anna, 0, 0)
	require.NoError(t, err)
	assert.Len(t, left.Tokens, 2)
	require.NoError(t, a.DeleteToken(ctx, made["owner"], made["viewer"].Token, "because"))
	require.NoError(t, a.DeleteToken(ctx, made["owner"], made["owner"].Token, "because"), "itself")
}

// The audit of all apps tells those who see one of them nothing of who the admins are.
func TestTheAuditNamesNoAdmin(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root, viewer := a.person("root", rights.Admin), a.person("eva", rights.Viewer, "pay")
	for who, want := range map[*rights.Person]bool{root: true, viewer: false} {
		rows, err := a.Audit(ctx, who, manage.WhichAudit{App: rights.AllApps, Action: "grant"})
		require.NoError(t, err)
		require.NotEmpty(t, rows.Rows)
		assert.Equal(t, want, rows.Rows[0].Detail != "", who.Name)
	}
}

// An app whose settings were never written can be deleted as well, and only as long as they are not.
func TestDeleteAppWithoutSettings(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root := a.person("root", rights.Admin)
	for _, app := range []string{"pay", "shop"} {
		_, err := a.PutPolicy(ctx, root, app, "api", text("100/1m"), create)
		require.NoError(t, err)
	}
	_, err := a.DeleteApp(ctx, root, "pay", create)
	require.NoError(t, err)
	_, err = a.PutApp(ctx, root, "shop", adminapi.Settings{Title: "Shop"}, create)
	require.NoError(t, err)
	_, err = a.DeleteApp(ctx, root, "shop", create)
	assert.Equal(t, http.StatusPreconditionFailed, status(err), "%v", err)
	assert.NotContains(t, manage.Problem(err).Detail, "policy")
}

// A preview asks no app about which the person may not know, though they type its name.
func TestPreviewAsksNoHiddenApp(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root, viewer := a.person("root", rights.Admin), a.person("eva", rights.Viewer, "shop")
	a.announce("api", "100/1m; algorithm fixed-window") // of pay
	for _, app := range []string{"pay", "shop"} {
		_, err := a.PutPolicy(ctx, root, app, "other", text("100/1m"), create)
		require.NoError(t, err)
	}
	ask := manage.AskPreview{Policy: adminapi.Policy{Text: "100/1m", Apps: []string{"pay"}}}
	found, err := a.Preview(ctx, root, "shop", "api", ask)
	require.NoError(t, err)
	assert.False(t, found.Unused)
	found, err = a.Preview(ctx, viewer, "shop", "api", ask)
	require.NoError(t, err)
	assert.True(t, found.Unused)
	assert.Empty(t, found.CannotUse)
}

// A key that is too long for a store is refused before anything is kept of it.
func TestPreviewOfALongKey(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	operator := a.person("ben", rights.Operator, "pay")
	ask := manage.AskPreview{Policy: text("100/1m"), Keys: []string{strings.Repeat("x", 100_000)}}
	_, err := a.Preview(ctx, operator, "pay", "api", ask)
	assert.Equal(t, http.StatusUnprocessableEntity, status(err))
	rows, err := a.Audit(ctx, operator, manage.WhichAudit{App: "pay", Action: "look"})
	require.NoError(t, err)
	assert.Empty(t, rows.Rows)
}

// Tiers that one process has and others have not are no reason to write them for all: anybody can announce a process.
func TestTakeOverOfTiers(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	owner := a.person("anna", rights.Owner, "pay")
	process := func(id string, tiers map[string]string) *policies.Process {
		return &policies.Process{ID: id, Rules: []policies.RuleState{
			{Policy: "api", Code: "100/1m", Now: "100/1m", Tiers: tiers, Meaning: policies.Code},
		}}
	}
	pro := map[string]string{"pro": "500/1m"}
	a.processes["pay"] = []*policies.Process{process("1", map[string]string{"pro": "unlimited"}), process("2", pro)}
	_, err := a.TakeOver(ctx, owner, "pay", "api", create)
	assert.Equal(t, http.StatusConflict, status(err))
	a.sleep(time.Minute)
	a.processes["pay"] = []*policies.Process{process("1", pro), process("2", nil)}
	_, err = a.TakeOver(ctx, owner, "pay", "api", create)
	assert.Equal(t, http.StatusConflict, status(err))
	a.sleep(time.Minute)
	a.processes["pay"] = []*policies.Process{process("1", pro), process("2", pro)}
	written, err := a.TakeOver(ctx, owner, "pay", "api", create)
	require.NoError(t, err)
	require.Len(t, written.Differences, 1)
	assert.Equal(t, pro, written.Differences[0].After.Tiers)
}

// A token of somebody shows none of their other tokens whose apps are hidden from it.
func TestTokensOfHiddenApps(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	anna := a.person("anna", rights.Owner, "pay", "secret")
	for _, app := range []string{"pay", "secret"} {
		_, err := a.MakeToken(ctx, anna, manage.NewToken{Name: app, Apps: []string{app}, Role: "viewer", Days: 1}, "because")
		require.NoError(t, err)
	}
	all, err := a.Tokens(ctx, anna, 0, 0)
	require.NoError(t, err)
	require.Len(t, all.Tokens, 2)
	token := &rights.Person{ID: anna.ID, Roles: map[string]rights.Role{"pay": rights.Viewer}, Token: all.Tokens[0].ID}
	seen, err := a.Tokens(ctx, token, 0, 0)
	require.NoError(t, err)
	require.Len(t, seen.Tokens, 1)
	assert.Equal(t, "pay", seen.Tokens[0].Name)
}

// An owner of all apps gives roles in each, and so sees people.
func TestAnOwnerOfAllAppsSeesPeople(t *testing.T) {
	a := start(t, sqltest.New(t))
	everywhere, viewer := a.person("anna", rights.Owner, rights.AllApps), a.person("eva", rights.Viewer, "pay")
	all, err := a.People(t.Context(), everywhere, "", 0)
	require.NoError(t, err)
	assert.Len(t, all.People, 2)
	_, err = a.People(t.Context(), viewer, "", 0)
	assert.Equal(t, http.StatusForbidden, status(err))
}
