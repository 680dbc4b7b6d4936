package rights_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/admin/rights"
)

func in(app string, role rights.Role) *rights.Person {
	return &rights.Person{ID: "local:p", Name: "p", Roles: map[string]rights.Role{app: role}}
}

// Each action, for each role in the app and for those who are not of it.
func TestTable(t *testing.T) {
	seen := map[rights.Action]bool{}
	before := rights.None
	for _, right := range rights.Table() {
		assert.False(t, seen[right.Action], "%s stands twice", right.Action)
		seen[right.Action] = true
		assert.NotEmpty(t, right.Does)
		assert.GreaterOrEqual(t, right.Least, before, "%s is out of order", right.Action)
		before = right.Least

		a := right.Action
		assert.Equal(t, rights.Hidden, rights.Decide(nil, a, "pay"), "%s: nobody", a)
		assert.Equal(t, rights.Hidden, rights.Decide(&rights.Person{}, a, "pay"), "%s: somebody without a role", a)
		assert.Equal(t, rights.Hidden, rights.Decide(in("shop", rights.Owner), a, "pay"), "%s: the owner of another app", a)
		for role := rights.Viewer; role <= rights.Owner; role++ {
			want := rights.Forbidden
			if role >= right.Least {
				want = rights.Allowed
			}
			assert.Equal(t, want, rights.Decide(in("pay", role), a, "pay"), "%s: %s", a, role)
			assert.Equal(t, want, rights.Decide(in(rights.AllApps, role), a, "pay"), "%s: %s of all apps", a, role)
			assert.Equal(t, rights.Forbidden, rights.Decide(in("pay", role), a), "%s: %s, of no app", a, role)
		}
		admin := &rights.Person{Admin: true}
		assert.Equal(t, rights.Allowed, rights.Decide(admin, a, "pay"), a)
		assert.Equal(t, rights.Allowed, rights.Decide(admin, a), a)
		assert.Equal(t, rights.Allowed, rights.Decide(admin, a, rights.AllApps), a)
	}
}

// A policy that two apps use is changed by an owner of both.
func TestSharedPolicyNeedsEachApp(t *testing.T) {
	p := &rights.Person{Roles: map[string]rights.Role{"pay": rights.Owner, "shop": rights.Viewer}}
	assert.Equal(t, rights.Forbidden, rights.Decide(p, rights.ActionWrite, "pay", "shop"))
	assert.Equal(t, rights.Hidden, rights.Decide(p, rights.ActionWrite, "pay", "hr"), "and cannot find out that hr exists")
	assert.Equal(t, rights.Hidden, rights.Decide(p, rights.ActionWrite, "shop", "hr"))
	p.Roles["shop"] = rights.Owner
	assert.Equal(t, rights.Allowed, rights.Decide(p, rights.ActionWrite, "pay", "shop"))
}

// What holds for all apps is seen by all who see an app, and written by admins.
func TestAllApps(t *testing.T) {
	for _, p := range []*rights.Person{in("pay", rights.Viewer), in("pay", rights.Owner), in(rights.AllApps, rights.Owner)} {
		assert.Equal(t, rights.Allowed, rights.Decide(p, rights.ActionView, rights.AllApps))
		assert.Equal(t, rights.Forbidden, rights.Decide(p, rights.ActionWrite, rights.AllApps))
	}
	assert.Equal(t, rights.Hidden, rights.Decide(&rights.Person{}, rights.ActionView, rights.AllApps))
}

// A role "admin" among those of an app makes no admin: nothing but Person.Admin does.
func TestRoleOfAnAppMakesNoAdmin(t *testing.T) {
	p := &rights.Person{Roles: map[string]rights.Role{"pay": rights.Admin, rights.AllApps: rights.Admin}}
	assert.Equal(t, rights.Owner, p.Role("pay"))
	assert.Equal(t, rights.Forbidden, rights.Decide(p, rights.ActionAddApp, "pay"))
	assert.Equal(t, rights.Forbidden, rights.Decide(p, rights.ActionAuditAll))
}

func TestUnknownActionIsForNobody(t *testing.T) {
	assert.Equal(t, rights.Forbidden, rights.Decide(&rights.Person{Admin: true}, "fly", "pay"))
	assert.Equal(t, rights.Hidden, rights.Decide(in("shop", rights.Owner), "fly", "pay"))
}

// More of a role never allows less, and another app never allows more.
func TestMonotone(t *testing.T) {
	apps := []string{"a", "b", rights.AllApps}
	role := rapid.Map(rapid.IntRange(0, int(rights.Owner)), func(n int) rights.Role { return rights.Role(n) })
	all := rights.Table()
	rapid.Check(t, func(t *rapid.T) {
		p := &rights.Person{Roles: rapid.MapOf(rapid.SampledFrom(apps), role).Draw(t, "roles")}
		p.Admin = rapid.Bool().Draw(t, "admin")
		action := rapid.SampledFrom(all).Draw(t, "action")
		named := rapid.SliceOfN(rapid.SampledFrom(apps), 1, 3).Draw(t, "apps")
		verdict := rights.Decide(p, action.Action, named...)

		more := &rights.Person{Roles: map[string]rights.Role{}, Admin: p.Admin}
		for _, app := range apps {
			more.Roles[app] = max(p.Roles[app], role.Draw(t, "more"))
		}
		if rights.Decide(more, action.Action, named...) < verdict {
			t.Fatalf("%+v may do less than %+v", more, p)
		}
		if rights.Decide(p, action.Action, append(named, rapid.SampledFrom(apps).Draw(t, "further"))...) > verdict {
			t.Fatal("a further app allows more")
		}
		if verdict == rights.Hidden && rights.Decide(p, rights.ActionView, named...) == rights.Allowed {
			t.Fatal("what may be seen is hidden")
		}
		if verdict == rights.Allowed && rights.Decide(p, rights.ActionView, named...) != rights.Allowed {
			t.Fatal("what may be written cannot be seen")
		}
	})
}

func TestRoleText(t *testing.T) {
	for r := rights.None; r <= rights.Admin; r++ {
		text, err := r.MarshalText()
		require.NoError(t, err)
		back := rights.Admin
		require.NoError(t, back.UnmarshalText(text))
		assert.Equal(t, r, back)
	}
	for _, word := range []string{"", "none", "Admin", "owner ", "root"} {
		_, err := rights.ParseRole(word)
		assert.ErrorContains(t, err, "give", word)
	}
	assert.Equal(t, "Role(9)", rights.Role(9).String())
}
