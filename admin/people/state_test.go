package people_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

// People who have left the company do not log in any more, and so their tokens lose the rights of groups after 30 days.
// Those without a right are forgotten after 90.
func TestThoseWhoHaveLeft(t *testing.T) { sqltest.Each(t, thoseWhoHaveLeft) }

func thoseWhoHaveLeft(t *testing.T, location string) {
	c := startCompany(t)
	s := start(t, location, withCompany(c))
	s.grants(t, "pay", people.Grant{Kind: people.KindGroup, Subject: "payments", Role: rights.Operator})
	anna := people.ID(c.url, "7")
	b := newBrowser(t)
	b.get(s.url + "/login/start")
	who, err := s.of(b)
	require.NoError(t, err)
	secret, _ := s.token(t, who, people.NewToken{Name: "a", Apps: []string{"pay"}, Role: rights.Operator, Days: 365})
	rows, err := s.audit.List(t.Context(), audit.Filter{Person: anna, Action: "enter"})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, "Anna A", rows[0].By.Name)
	assert.Contains(t, rows[0].Detail, "127.0.0.1")

	c.is("8", "Eve", "sales")
	newBrowser(t).get(s.url + "/login/start")
	c.is("9", "Otto", "payments")
	newBrowser(t).get(s.url + "/login/start")
	names := func() (all []string) {
		known, err := s.People.People(t.Context())
		require.NoError(t, err)
		for _, k := range known {
			all = append(all, k.Name)
		}
		return all
	}
	assert.Equal(t, []string{"Anna A", "Eve", "Otto"}, names())

	s.now.ahead = 29 * 24 * time.Hour
	_, err = s.with(secret)
	require.NoError(t, err)
	s.now.ahead = 31 * 24 * time.Hour
	_, err = s.with(secret)
	require.ErrorIs(t, err, people.ErrToken)
	s.now.ahead = 91 * 24 * time.Hour
	c.is("9", "Otto", "payments")
	newBrowser(t).get(s.url + "/login/start")
	assert.Equal(t, []string{"Anna A", "Otto"}, names(), "Anna has made a token")
}

// Reading everything again takes no longer than people wait for, with as many as there may be.
func TestManyPeople(t *testing.T) {
	s := start(t, sqltest.New(t))
	s.grants(t, rights.AllApps, grant("local:root", rights.Admin))
	const many = 5000
	err := s.db.Write(t.Context(), func(ctx ctx, tx sqldb.Tx) error {
		for i := range many {
			id, hash := fmt.Sprintf("local:p%d", i), fmt.Sprintf("%064d", i)
			for _, q := range []struct {
				text string
				args []any
			}{
				{
					`INSERT INTO weir_people (id, issuer, subject, name, seen, barred) VALUES (?, '', ?, ?, ?, 0)`,
					[]any{id, id, id, time.Now().UnixMicro()},
				},
				{`INSERT INTO weir_grants (app, kind, subject, role, ends) VALUES ('pay', 'person', ?, 'owner', 0)`, []any{id}},
				{`INSERT INTO weir_members (person, name) VALUES (?, 'everybody')`, []any{id}},
				{`INSERT INTO weir_tokens (id, hash, name, maker, parent, apps, role, made, ends, used)
					VALUES (?, ?, 'a', ?, 0, '["pay"]', 'owner', 0, ?, 0)`, []any{1000 + i, hash, id, time.Now().AddDate(1, 0, 0).UnixMicro()}},
				{
					`INSERT INTO weir_sessions (hash, person, began, seen) VALUES (?, ?, ?, ?)`,
					[]any{hash, id, time.Now().UnixMicro(), time.Now().UnixMicro()},
				},
			} {
				if _, err := tx.Exec(ctx, q.text, q.args...); err != nil {
					return err
				}
			}
		}
		_, err := tx.Exec(ctx, `UPDATE weir_known SET changes = changes + 1`)
		return err
	})
	require.NoError(t, err)
	s.Outdate()
	began := time.Now()
	all, err := s.Tokens(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, all, many)
	took := time.Since(began)
	s.Outdate()
	began = time.Now()
	_, err = s.Tokens(t.Context(), "local:p7")
	require.NoError(t, err)
	t.Logf("%d people, grants, tokens and sessions: %v, and %v when nothing has changed", many, took, time.Since(began))
	b := s.login(t, "anna", rights.Viewer, "shop", 0)
	_, err = s.of(b)
	require.NoError(t, err)
}
