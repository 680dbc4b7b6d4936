package manage_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

func personOf(name string, roles map[string]rights.Role) *rights.Person {
	return &rights.Person{ID: name, Name: name, Roles: roles}
}

// Keys are persons: no answer to somebody who may not look at keys has one, nor the name of an app that they may not see.
func TestKeysAndAppsAreHidden(t *testing.T) {
	t.Parallel()
	a := start(t, sqltest.New(t))
	ctx := t.Context()
	root := a.person("root", rights.Admin)
	write := manage.Write{Any: true, Reason: "a test"}
	for _, app := range []string{"pay", "secret"} {
		_, err := a.PutApp(ctx, root, app, adminapi.Settings{}, write)
		require.NoError(t, err)
	}
	for _, text := range []string{"10/1m", "20/1m"} {
		_, err := a.PutPolicy(ctx, root, "pay", "api", adminapi.Policy{
			Text: text, Keys: map[string]string{"user=4711": "5/1m"}, Apps: []string{"secret"},
		}, write)
		require.NoError(t, err)
	}
	_, err := a.PutPolicy(ctx, root, policies.AllApps, "every", adminapi.Policy{Text: "1/1s", Keys: map[string]string{"user=0815": "blocked"}}, write)
	require.NoError(t, err)

	seen := func(who *rights.Person) string {
		var all []any
		add := func(answer any, err error) {
			require.NoError(t, err)
			all = append(all, answer)
		}
		app, err := a.App(ctx, who, "pay")
		add(app, err)
		held, err := a.Policy(ctx, who, "pay", "api")
		add(held, err)
		history, err := a.History(ctx, who, "pay", "api", 0, 0)
		add(history, err)
		apps, err := a.Apps(ctx, who, "", 0)
		add(apps, err)
		audit, err := a.Audit(ctx, who, manage.WhichAudit{App: "pay"})
		add(audit, err)
		found, err := a.Search(ctx, who, "secret")
		add(found, err)
		data, err := json.Marshal(all)
		require.NoError(t, err)
		for _, owned := range []bool{false, true} {
			document, _, err := a.Document(ctx, who, "pay", owned)
			require.NoError(t, err)
			data = append(data, document...)
		}
		return string(data)
	}
	viewer := seen(personOf("vera", map[string]rights.Role{"pay": rights.Viewer}))
	for _, hidden := range []string{"4711", "0815", "secret"} {
		assert.NotContains(t, viewer, hidden)
	}
	assert.Contains(t, viewer, `"keyCount":1`)
	operator := seen(personOf("otto", map[string]rights.Role{"pay": rights.Operator}))
	assert.Contains(t, operator, "4711")
	for _, hidden := range []string{"0815", "secret"} { // the keys of a policy for all apps are for admins
		assert.NotContains(t, operator, hidden)
	}
	for _, shown := range []string{"4711", "0815", "secret"} {
		assert.Contains(t, seen(root), shown)
	}
}

// A policy that another app uses is changed by those who may change it there as well, and the refusal names no app that
// they may not see.
func TestARefusalNamesNoHiddenApp(t *testing.T) {
	t.Parallel()
	a := start(t, sqltest.New(t))
	ctx := t.Context()
	root := a.person("root", rights.Admin)
	write := manage.Write{Any: true, Reason: "a test"}
	_, err := a.PutPolicy(ctx, root, "pay", "lent", adminapi.Policy{Text: "10/1m", Apps: []string{"secret"}}, write)
	require.NoError(t, err)
	_, err = a.PutPolicy(ctx, root, "secret", "used", adminapi.Policy{Text: "10/1m", Apps: []string{"shop"}}, write)
	require.NoError(t, err)

	anna := a.person("anna", rights.Owner, "pay", "shop")
	_, err = a.PutPolicy(ctx, anna, "pay", "lent", adminapi.Policy{Text: "20/1m"}, write)
	p := manage.Problem(err)
	assert.Equal(t, http.StatusForbidden, p.Status)
	assert.NotContains(t, p.Error(), "secret")
	_, err = a.DeletePolicy(ctx, anna, "pay", "lent", write)
	assert.Equal(t, http.StatusForbidden, manage.Problem(err).Status)
	_, err = a.PutPolicy(ctx, anna, "shop", "used", adminapi.Policy{Text: "20/1m"}, write)
	p = manage.Problem(err)
	assert.Equal(t, http.StatusConflict, p.Status)
	assert.NotContains(t, p.Error(), "secret")
	_, err = a.Policy(ctx, anna, "shop", "used")
	p = manage.Problem(err)
	assert.Equal(t, http.StatusNotFound, p.Status)
	assert.NotContains(t, p.Error(), "secret")
	held, err := a.Policy(ctx, root, "pay", "lent")
	require.NoError(t, err)
	assert.Equal(t, "10/1m", held.Policy.Text, "nothing was written")
}
