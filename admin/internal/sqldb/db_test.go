package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/internal/race"
)

// A change that fails has written nothing, has taken no revision, and nothing follows it.
func TestNothingOfWhatFails(t *testing.T) { sqltest.Each(t, nothingOfWhatFails) }

func nothingOfWhatFails(t *testing.T, location string) {
	db := sqltest.Open(t, location)
	add := func(ctx context.Context, tx sqldb.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO weir_users (app, name, owner) VALUES (?, ?, ?)", "pay", "api", "pay")
		return err
	}
	mine := errors.New("mine")
	followed := false
	assert.Equal(t, mine, db.Change(t.Context(), func(ctx context.Context, c *sqldb.Change) error {
		c.After(func(err error) { followed = err == nil })
		assert.Equal(t, int64(1), c.Revision())
		require.NoError(t, add(ctx, c.Tx))
		return mine
	}))
	assert.Equal(t, mine, db.Write(t.Context(), func(ctx context.Context, tx sqldb.Tx) error {
		require.NoError(t, add(ctx, tx))
		return mine
	}))
	assert.False(t, followed)
	look := func(ctx context.Context, tx sqldb.Tx) error {
		var owner string
		return tx.Row(ctx, "SELECT owner FROM weir_users WHERE app = ?", "pay").Scan(&owner)
	}
	require.ErrorIs(t, db.Read(t.Context(), look), sql.ErrNoRows)

	require.NoError(t, db.Change(t.Context(), func(ctx context.Context, c *sqldb.Change) error {
		c.After(func(err error) { followed = err == nil })
		assert.Equal(t, []int64{1, 1}, []int64{c.Revision(), c.Revision()})
		return add(ctx, c.Tx)
	}))
	assert.True(t, followed)
	require.NoError(t, db.Read(t.Context(), look))
	require.NoError(t, db.Change(t.Context(), func(context.Context, *sqldb.Change) error { return nil }))
	assert.Equal(t, int64(2), next(t, db), "a change that asks for no revision takes none")

	// What the database refuses is its error.
	var unavailable *sqldb.UnavailableError
	require.ErrorAs(t, db.Write(t.Context(), add), &unavailable, "the row is there already")
	require.ErrorAs(t, db.Read(t.Context(), add), &unavailable, "a transaction that reads does not write")
}

// A copy of SQLite is a whole database of the moment, which its owner alone may read, and never takes the place of
// another file.
func TestBackup(t *testing.T) {
	if race.Enabled {
		t.Skip("there is no SQLite with the race detector")
	}
	db := sqltest.Open(t, sqltest.SQLite(t))
	next(t, db)
	file := filepath.Join(t.TempDir(), "it's a copy.db")
	require.NoError(t, db.Backup(t.Context(), file))
	next(t, db)
	assert.Equal(t, int64(2), next(t, sqltest.Open(t, file)))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.ErrorIs(t, db.Backup(t.Context(), file), os.ErrExist)
	assert.Equal(t, int64(3), next(t, sqltest.Open(t, file)), "it is as it was")
	gone := filepath.Join(t.TempDir(), "gone", "copy.db")
	require.ErrorIs(t, db.Backup(t.Context(), gone), os.ErrNotExist)
}

// The other databases have programs that copy them, and the error names the program.
func TestBackupOfServers(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, location string) {
		if driver, _ := sqldb.Driver(location); driver == "sqlite" {
			t.Skip("it is copied")
		}
		err := sqltest.Open(t, location).Backup(t.Context(), filepath.Join(t.TempDir(), "copy.db"))
		require.ErrorContains(t, err, "dump")
	})
}
