package people_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

func (s *site) token(t testing.TB, by *rights.Person, n people.NewToken) (string, people.Token) {
	t.Helper()
	secret, made, err := s.MakeToken(t.Context(), people.By{Person: by, Reason: "test"}, n)
	require.NoError(t, err)
	return secret, made
}

// A token has at most its maker's rights of now, in all processes.
func TestTokenOfMaker(t *testing.T) { sqltest.Each(t, tokenOfMaker) }

func tokenOfMaker(t *testing.T, location string) {
	s, other := start(t, location), start(t, location)
	s.grants(t, "pay", grant("local:anna", rights.Owner))
	s.grants(t, "shop", grant("local:anna", rights.Viewer))
	anna := &rights.Person{ID: "local:anna", Name: "anna"}
	deploy := people.NewToken{Name: "deploy", Apps: []string{"pay"}, Role: rights.Owner, Days: 30}
	secret, made := s.token(t, anna, deploy)
	assert.True(t, strings.HasPrefix(secret, "weir_"))
	assert.Len(t, secret, 48)

	for _, of := range []*site{s, other} {
		who, err := of.with(secret)
		require.NoError(t, err, "a token is known at once, whichever process has made it")
		assert.Equal(t, made.ID, who.Token)
		assert.Equal(t, "local:anna", who.ID)
		assert.Equal(t, "local:anna, token deploy", who.Name)
		assert.Equal(t, rights.Owner, who.Role("pay"))
		assert.Equal(t, rights.None, who.Role("shop"))
	}
	s.grants(t, "pay", grant("local:anna", rights.Operator))
	who, err := s.with(secret)
	require.NoError(t, err)
	assert.Equal(t, rights.Operator, who.Role("pay"))
	soon(t, func() bool { who, err := other.with(secret); return err == nil && who.Role("pay") == rights.Operator }, "elsewhere")
	_, _, err = s.MakeToken(t.Context(), people.By{Person: anna}, deploy)
	require.ErrorContains(t, err, `found the role "owner" in app "pay"`)
	s.grants(t, "pay")
	_, err = s.with(secret)
	require.ErrorIs(t, err, people.ErrToken)
	soon(t, func() bool { _, err := other.with(secret); return errors.Is(err, people.ErrToken) }, "elsewhere")
	s.grants(t, "pay", grant("local:anna", rights.Owner))

	listed, err := s.Tokens(t.Context(), "local:anna")
	require.NoError(t, err)
	require.Len(t, listed, 1)
	assert.WithinDuration(t, time.Now(), listed[0].Used, time.Hour+time.Minute, "used, to the hour")
	listed[0].Used, made.Used = time.Time{}, time.Time{}
	assert.Equal(t, made, listed[0])
	require.NoError(t, s.DeleteToken(t.Context(), console, made.ID))
	_, err = s.with(secret)
	require.ErrorIs(t, err, people.ErrToken)
	soon(t, func() bool { _, err := other.with(secret); return errors.Is(err, people.ErrToken) }, "elsewhere")
	var gone *people.NotFoundError
	require.ErrorAs(t, s.DeleteToken(t.Context(), console, made.ID), &gone)

	// Neither the secret nor its end stands anywhere in the database.
	err = s.db.Read(t.Context(), func(ctx ctx, tx sqldb.Tx) error {
		return tx.Each(ctx, func(row sqldb.Row) error {
			var detail string
			err := row.Scan(&detail)
			assert.NotContains(t, detail, secret[5:])
			return err
		}, `SELECT detail FROM weir_audit`)
	})
	require.NoError(t, err)
}

func TestTokenEnds(t *testing.T) {
	s := start(t, sqltest.New(t))
	secret, made, err := s.MakeLocalToken(t.Context(), console, people.LocalPerson{Name: "ci", Role: rights.Owner, App: "pay", Days: 1},
		people.NewToken{Name: "ci", Apps: []string{"pay"}, Role: rights.Owner, Days: 365})
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().AddDate(0, 0, 365), made.Ends, 2*time.Hour)
	_, err = s.with(secret)
	require.NoError(t, err)
	s.now.ahead = 25 * time.Hour
	_, err = s.with(secret)
	require.ErrorIs(t, err, people.ErrToken, "the role has ended")
	s.grants(t, "pay", grant("local:ci", rights.Owner))
	_, err = s.with(secret)
	require.NoError(t, err)
	s.now.ahead = 366 * 24 * time.Hour
	_, err = s.with(secret)
	require.ErrorIs(t, err, people.ErrToken)
	listed, err := s.Tokens(t.Context(), "")
	require.NoError(t, err)
	assert.Empty(t, listed)
}

func TestTokensAreChecked(t *testing.T) {
	s := start(t, sqltest.New(t))
	s.grants(t, "pay", grant("local:anna", rights.Owner))
	anna := &rights.Person{ID: "local:anna"}
	for want, n := range map[string]people.NewToken{
		"give 1 to 365":   {Name: "a", Apps: []string{"pay"}, Role: rights.Viewer, Days: 366},
		"no role":         {Name: "a", Apps: []string{"pay"}, Days: 1},
		"0 apps":          {Name: "a", Role: rights.Viewer, Days: 1},
		"give it alone":   {Name: "a", Apps: []string{"pay", "*"}, Role: rights.Viewer, Days: 1},
		`give "*" as its`: {Name: "a", Apps: []string{"pay"}, Role: rights.Admin, Days: 1},
		"twice":           {Name: "a", Apps: []string{"pay", "pay"}, Role: rights.Viewer, Days: 1},
		"the name":        {Name: "a\x00", Apps: []string{"pay"}, Role: rights.Viewer, Days: 1},
		`in app "shop"`:   {Name: "a", Apps: []string{"pay", "shop"}, Role: rights.Viewer, Days: 1},
		`in app "*"`:      {Name: "a", Apps: []string{"*"}, Role: rights.Admin, Days: 1},
	} {
		_, _, err := s.MakeToken(t.Context(), people.By{Person: anna}, n)
		assert.ErrorContains(t, err, want)
	}
	for i := range people.MaxTokens {
		s.token(t, anna, people.NewToken{Name: fmt.Sprint(i), Apps: []string{"pay"}, Role: rights.Viewer, Days: 1})
	}
	_, _, err := s.MakeToken(t.Context(), people.By{Person: anna}, people.NewToken{Name: "a", Apps: []string{"pay"}, Role: rights.Viewer, Days: 1})
	assert.ErrorContains(t, err, "delete one first")
}

// A token that a token makes has at most its apps, its role and its end, and goes with it.
func TestTokenOfToken(t *testing.T) {
	s := start(t, sqltest.New(t))
	s.grants(t, rights.AllApps, grant("local:anna", rights.Admin))
	secret, parent := s.token(t, &rights.Person{ID: "local:anna"}, people.NewToken{Name: "a", Apps: []string{"pay"}, Role: rights.Operator, Days: 2})
	who, err := s.with(secret)
	require.NoError(t, err)
	for _, more := range []people.NewToken{
		{Name: "b", Apps: []string{"pay"}, Role: rights.Owner, Days: 1},
		{Name: "b", Apps: []string{"shop"}, Role: rights.Viewer, Days: 1},
		{Name: "b", Apps: []string{"*"}, Role: rights.Admin, Days: 1},
	} {
		_, _, err := s.MakeToken(t.Context(), people.By{Person: who}, more)
		require.Error(t, err, "%v", more)
	}
	child, made := s.token(t, who, people.NewToken{Name: "b", Apps: []string{"pay"}, Role: rights.Viewer, Days: 30})
	assert.Equal(t, parent.Ends, made.Ends)
	who, err = s.with(child)
	require.NoError(t, err)
	grandchild, _ := s.token(t, who, people.NewToken{Name: "c", Apps: []string{"pay"}, Role: rights.Viewer, Days: 1})
	_, err = s.with(grandchild)
	require.NoError(t, err)
	require.NoError(t, s.DeleteToken(t.Context(), console, parent.ID))
	for _, gone := range []string{secret, child, grandchild} {
		_, err = s.with(gone)
		require.ErrorIs(t, err, people.ErrToken)
	}
	_, _, err = s.MakeToken(t.Context(), people.By{Person: who}, people.NewToken{Name: "d", Apps: []string{"pay"}, Role: rights.Viewer, Days: 1})
	require.Error(t, err, "a token that is gone makes none")
}

// Whatever roles a maker has and loses, no token of them may do more than the maker, or than it was made for.
func TestTokenNeverExceedsMaker(t *testing.T) {
	apps := []string{"a", "b", rights.AllApps}
	role := rapid.Map(rapid.IntRange(0, int(rights.Owner)), func(n int) rights.Role { return rights.Role(n) })
	rapid.Check(t, func(t *rapid.T) {
		roles := rapid.MapOf(rapid.SampledFrom(apps), role).Draw(t, "roles")
		admin := rapid.Bool().Draw(t, "admin")
		of := rapid.SliceOfNDistinct(rapid.SampledFrom(apps), 1, 3, rapid.ID).Draw(t, "apps")
		most := rapid.Map(rapid.IntRange(1, int(rights.Admin)), func(n int) rights.Role { return rights.Role(n) }).Draw(t, "role")
		maker, token := people.TokenRights(roles, admin, of, most)
		for _, action := range rights.Table() {
			for _, app := range []string{"a", "b", "c", rights.AllApps} {
				if rights.Decide(token, action.Action, app) > rights.Decide(maker, action.Action, app) {
					t.Fatalf("%s of %s: the token may more", action.Action, app)
				}
			}
			if rights.Decide(token, action.Action) > rights.Decide(maker, action.Action) {
				t.Fatalf("%s: the token may more", action.Action)
			}
		}
		for _, app := range []string{"a", "b", "c"} {
			if token.Role(app) > most {
				t.Fatalf("the token is %s in %s", token.Role(app), app)
			}
		}
	})
}

// A request with a wrong token has no right, not even that of its session.
func TestWrongAuthorization(t *testing.T) {
	s := start(t, sqltest.New(t))
	b := s.login(t, "anna", rights.Owner, "pay", 0)
	secret, _ := s.token(t, &rights.Person{ID: "local:anna"}, people.NewToken{Name: "a", Apps: []string{"pay"}, Role: rights.Viewer, Days: 2})
	for _, lines := range [][]string{
		{""},
		{"Bearer"},
		{"Bearer " + secret + "x"},
		{"Basic " + secret},
		{"Bearer " + secret[5:]},
		{secret},
		{"Bearer " + secret, "Bearer " + secret},
		{"Bearer weir_"},
		{"Bearer " + strings.ToUpper(secret)},
	} {
		r := httptest.NewRequest(http.MethodGet, s.url, nil)
		r.AddCookie(&http.Cookie{Name: s.cookieName(), Value: b.session(s.url)})
		_, err := s.Authenticate(r)
		require.NoError(t, err)
		r.Header["Authorization"] = lines
		_, err = s.Authenticate(r)
		require.ErrorIs(t, err, people.ErrToken, "%q", lines)
	}
	who, err := s.with(secret)
	require.NoError(t, err)
	assert.Equal(t, rights.Viewer, who.Role("pay"))
}
