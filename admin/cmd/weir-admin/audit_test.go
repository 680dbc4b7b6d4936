package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
)

// A row that somebody has changed is found, and so is one that is gone from the end, if a line of it was kept.
func TestAuditVerify(t *testing.T) {
	at := sqltest.New(t)
	var lines strings.Builder
	db := sqltest.Open(t, at)
	log := audit.New(db, audit.Options{Lines: &lines})
	r := record.New(db, log)
	for n := range 3 {
		_, err := r.Change(t.Context(), record.Change{
			App: "pay", By: audit.Person{ID: "local:anna", Name: "anna"}, Reason: "a test", Action: "set",
			Edits: []record.Edit{{Name: "api", Policy: &policies.Policy{Text: fmt.Sprint(n+1, "/1m")}}},
		})
		require.NoError(t, err)
	}
	require.NoError(t, log.Close())
	exec := func(query string) {
		t.Helper()
		require.NoError(t, db.Change(t.Context(), func(ctx context.Context, c *sqldb.Change) error {
			_, err := c.Exec(ctx, query)
			return err
		}))
	}
	verify := func(args ...string) (string, error) {
		var out strings.Builder
		err := run(t.Context(), append([]string{"audit", "verify", "-db", at}, args...), &out, io.Discard)
		return out.String(), err
	}
	logged := write(t, lines.String())
	out, err := verify("-log", logged)
	require.NoError(t, err)
	assert.Contains(t, out, "3 rows are as they were written, 3 of them compared with what was kept; the last is 3:")
	_, head, _ := strings.Cut(strings.TrimSpace(out), "the last is ")
	_, err = verify("-head", head)
	require.NoError(t, err)
	_, err = verify("-head", "3:"+strings.Repeat("0", 64))
	require.ErrorIs(t, err, status(found))
	for _, wrong := range []string{"3", "x:y", "0:ab"} {
		_, err := verify("-head", wrong)
		require.ErrorContains(t, err, "-head")
		assert.False(t, errors.Is(err, status(found)))
	}
	_, err = verify("-log", logged+"-not")
	require.ErrorContains(t, err, "-log")

	exec(`UPDATE weir_audit SET reason = 'another' WHERE seq = 2`)
	out, err = verify()
	require.ErrorIs(t, err, status(found))
	assert.Contains(t, out, "row 2 ")
}

// Keys are forgotten by the day, and the chain still holds.
func TestAuditForget(t *testing.T) {
	at := sqltest.New(t)
	log := audit.New(sqltest.Open(t, at), audit.Options{})
	for range 3 {
		require.NoError(t, log.Write(t.Context(), audit.Row{By: audit.Person{ID: "local:anna"}, Action: "look", Key: "user=7"}))
	}
	weir := func(args ...string) (string, error) {
		var out strings.Builder
		err := run(t.Context(), append([]string{"audit", args[0], "-db", at}, args[1:]...), &out, io.Discard)
		return out.String(), err
	}
	for _, wrong := range [][]string{
		{"forget", "-before", "yesterday", "-reason", "x"}, {"forget", "-reason", "x"}, {"forget", "-before", "2026-01-31"},
	} {
		_, err := weir(wrong...)
		require.Error(t, err, "%q", wrong)
	}
	for _, step := range []struct{ before, says string }{
		{"2020-01-31", "the keys of 0 rows are deleted, and of 0 versions that hold no longer\n"}, {"2999-01-31", "the keys of 3 rows are deleted, and of 0 versions that hold no longer\n"},
	} {
		out, err := weir("forget", "-before", step.before, "-reason", "it is the law")
		require.NoError(t, err)
		assert.Equal(t, step.says, out)
	}
	out, err := weir("verify")
	require.NoError(t, err)
	assert.Contains(t, out, "5 rows are as they were written")
	_, err = weir("verify", "-log", write(t, "nothing of the audit"))
	require.ErrorContains(t, err, "no row of the audit")
}
