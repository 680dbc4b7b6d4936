package manage_test

import (
	"net/http"
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// The API admits what people keeps, no more and no less: a tag cannot name a constant.
func TestBoundsAreThoseOfPeople(t *testing.T) {
	for _, test := range []struct {
		of         any
		field, tag string
		want       int
	}{
		{manage.Grants{}, "Grants", "maxItems", people.MaxGrants},
		{manage.NewToken{}, "Apps", "maxItems", people.MaxTokenApps},
		{manage.NewToken{}, "Days", "maximum", people.MaxDays},
	} {
		field, found := reflect.TypeOf(test.of).FieldByName(test.field)
		require.True(t, found, test.field)
		assert.Equal(t, strconv.Itoa(test.want), field.Tag.Get(test.tag), test.field)
	}
}

// A refusal names somebody who can give the right: an owner of the app, or nobody where only admins have it.
func TestRefusalsNameWhoCanHelp(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root, anna := a.person("root", rights.Admin), a.person("anna", rights.Viewer, "pay")
	_, err := a.PutApp(ctx, root, "pay", adminapi.Settings{}, create)
	require.NoError(t, err)
	_, err = a.PutPolicy(ctx, anna, "pay", "api", text("100/1m"), create)
	require.EqualError(t, err, `you may see app "pay", and may not "write" there; an owner of it can give you the right`)
	_, err = a.DeleteApp(ctx, anna, "pay", anyway)
	require.EqualError(t, err, `only admins may "delete-app"`)
	_, err = a.DeleteApp(ctx, anna, "shop", anyway)
	require.EqualError(t, err, `there is no app "shop" that you may see; an admin can add it, or give you a right on it`)
	_, err = a.DeleteApp(ctx, root, "shop", anyway)
	require.EqualError(t, err, `there is no app "shop" that you may see; an admin can add it, or give you a right on it`)
}

// A change is decided by the rights of the moment at which it is written, however long the request has waited for that.
func TestOwnersWhoAreNoneAnyMore(t *testing.T) { sqltest.Each(t, ownersNoMore) }

func ownersNoMore(t *testing.T, location string) {
	a, ctx := start(t, location), t.Context()
	root, anna := a.person("root", rights.Admin), a.person("anna", rights.Owner, "pay")
	_, err := a.PutApp(ctx, root, "pay", adminapi.Settings{}, create)
	require.NoError(t, err)
	_, err = a.PutPolicy(ctx, anna, "pay", "api", text("100/1m"), create)
	require.NoError(t, err)
	viewer := people.Grant{Kind: people.KindPerson, Subject: anna.ID, Role: rights.Viewer}
	_, err = a.people.SetGrants(ctx, people.By{Person: people.Console(), Reason: "for a test"}, "pay", []people.Grant{viewer}, people.Any)
	require.NoError(t, err)
	for what, change := range map[string]func(manage.Write) (*adminapi.Written, error){
		"policy": func(w manage.Write) (*adminapi.Written, error) {
			return a.PutPolicy(ctx, anna, "pay", "api", text("7/1m"), w)
		},
		"settings": func(w manage.Write) (*adminapi.Written, error) {
			return a.PutApp(ctx, anna, "pay", adminapi.Settings{Title: "x"}, w)
		},
		"deletion": func(w manage.Write) (*adminapi.Written, error) { return a.DeletePolicy(ctx, anna, "pay", "api", w) },
	} {
		_, err := change(anyway)
		assert.Equal(t, http.StatusForbidden, status(err), "%s: %v", what, err)
	}
	held, err := a.Policy(ctx, root, "pay", "api")
	require.NoError(t, err)
	assert.Equal(t, "100/1m", held.Policy.Text)
}

// An admin who is but an owner when the settings are written does not pass over the second person.
func TestAdminsWhoAreNoneAnyMore(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root, anna := a.person("root", rights.Admin), a.person("anna", rights.Owner, "pay")
	_, err := a.PutApp(ctx, root, "pay", adminapi.Settings{FourEyes: true}, create)
	require.NoError(t, err)
	was := *anna
	was.Admin = true
	_, err = a.PutApp(ctx, &was, "pay", adminapi.Settings{}, anyway)
	assert.Equal(t, http.StatusForbidden, status(err))
	app, err := a.App(ctx, root, "pay")
	require.NoError(t, err)
	assert.True(t, app.Settings.FourEyes)
}
