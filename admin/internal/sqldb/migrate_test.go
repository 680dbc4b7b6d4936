package sqldb_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/internal/race"
)

// childEnv has the location of a database that a child of the test opens, again and again, until it is killed.
const childEnv = "WEIR_SQLDB_OPEN"

func TestMain(m *testing.M) {
	if location := os.Getenv(childEnv); location != "" {
		fmt.Println("opening")
		r, err := sqldb.Open(context.Background(), location)
		fmt.Println(r != nil, err)
		select {}
	}
	os.Exit(sqltest.Main(m))
}

// Killed anywhere in its first start, a program leaves tables that the next one completes.
func TestMigrationsAreKilled(t *testing.T) { sqltest.Each(t, migrationsAreKilled) }

func migrationsAreKilled(t *testing.T, location string) {
	began := time.Now()
	child(t, location, -1) // how long it takes undisturbed
	took := time.Since(began)
	drop(t, location)
	for range 15 {
		child(t, location, time.Duration(rand.Int64N(int64(took))))
	}
	assert.Equal(t, int64(1), next(t, sqltest.Open(t, location)))
	assert.Equal(t, int64(2), next(t, sqltest.Open(t, location)))
}

// Several programs that start at once on a new database make its tables once.
func TestMigrationsAtOnce(t *testing.T) { sqltest.Each(t, migrationsAtOnce) }

func migrationsAtOnce(t *testing.T, location string) {
	var work sync.WaitGroup
	for range 6 {
		work.Go(func() {
			r, err := sqldb.Open(t.Context(), location)
			if assert.NoError(t, err) {
				assert.NoError(t, r.Close())
			}
		})
	}
	work.Wait()
	assert.Equal(t, int64(1), next(t, sqltest.Open(t, location)))
}

// child lets another process open the database, and kills it after a time, or once it is done if that is negative.
func child(t *testing.T, location string, after time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+location)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "it has begun")
	if after >= 0 {
		<-time.After(after)
	} else {
		require.True(t, lines.Scan())
		require.Equal(t, "true <nil>", lines.Text())
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
}

// drop deletes the tables, so that the next start is a first one.
func drop(t *testing.T, location string) {
	t.Helper()
	db := raw(t, location)
	for _, table := range sqldb.Tables() {
		_, err := db.ExecContext(t.Context(), "DROP TABLE "+table)
		require.NoError(t, err)
	}
}

// next makes a change that takes a revision.
func next(t *testing.T, db *sqldb.DB) (revision int64) {
	t.Helper()
	require.NoError(t, db.Change(t.Context(), func(_ context.Context, c *sqldb.Change) error {
		revision = c.Revision()
		return nil
	}))
	return revision
}

func raw(t *testing.T, location string) *sql.DB {
	t.Helper()
	driver, name := sqldb.Driver(location)
	db, err := sql.Open(driver, name)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

// A table of migrations without a row is left where a program is killed between two statements and the database cannot
// undo the first. goose alone would fail on it for ever.
func TestNoFirstMigration(t *testing.T) { sqltest.Each(t, noFirstMigration) }

func noFirstMigration(t *testing.T, location string) {
	assert.Equal(t, int64(1), next(t, sqltest.Open(t, location)))
	_, err := raw(t, location).ExecContext(t.Context(), "DELETE FROM weir_migrations")
	require.NoError(t, err)
	assert.Equal(t, int64(2), next(t, sqltest.Open(t, location)))
}

// A location that cannot be a database is an error at once, and not when everybody has given up waiting.
func TestNoDatabase(t *testing.T) {
	if race.Enabled {
		t.Skip("there is no SQLite with the race detector")
	}
	garbage := filepath.Join(t.TempDir(), "garbage.db")
	require.NoError(t, os.WriteFile(garbage, bytes.Repeat([]byte("no database "), 1000), 0o600))
	for name, location := range map[string]string{
		"a directory": t.TempDir(), "in no directory": filepath.Join(t.TempDir(), "gone", "weir.db"), "another file": garbage,
	} {
		began := time.Now()
		_, err := sqldb.Open(t.Context(), location)
		require.ErrorContains(t, err, "the tables of SQLite", name)
		assert.Less(t, time.Since(began), 20*time.Second, name) // and not 30
	}
}
