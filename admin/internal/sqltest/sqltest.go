// Package sqltest gives tests databases of their own: files of SQLite, and private servers of PostgreSQL and MariaDB,
// which listen on sockets in a temporary directory. As root they run as the users that Debian's packages have made.
//
// Where a server is not installed, tests of it are skipped; with WEIR_REQUIRE_SQL=1 in the environment they fail.
package sqltest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-go/weir/admin/internal/sqldb"
	_ "github.com/weir-go/weir/admin/internal/sqldb/drivers" // which every test of a database needs
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/redistest"
)

// requireEnv is the environment variable that turns a skipped test into a failed one.
const requireEnv = "WEIR_REQUIRE_SQL"

// Main is redistest.Main, which also ends the shared servers of this package.
func Main(m *testing.M) int { return redistest.Main(m) }

// sharedPostgres and sharedMariaDB start a server for the first test of a package that asks.
var (
	sharedPostgres = redistest.Share(Postgres)
	sharedMariaDB  = redistest.Share(MariaDB)
)

// Each calls test as a subtest for a database of each kind.
func Each(t *testing.T, test func(t *testing.T, location string)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		if race.Enabled {
			t.Skip("there is no SQLite with the race detector")
		}
		test(t, SQLite(t))
	})
	t.Run("PostgreSQL", func(t *testing.T) { test(t, sharedPostgres(t).Database(t)) })
	t.Run("MariaDB", func(t *testing.T) { test(t, sharedMariaDB(t).Database(t)) })
}

// New returns the location of a database for a test to which the kind does not matter.
func New(t testing.TB) string {
	t.Helper()
	if race.Enabled {
		return sharedPostgres(t).Database(t)
	}
	return SQLite(t)
}

// SQLite returns the location of a database in a file that goes with the test.
func SQLite(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "weir.db")
}

// Open opens the database at a location until the test ends.
func Open(t testing.TB, location string) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), location)
	if err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("sqltest: %v", err)
		}
	})
	return db
}

func skip(t testing.TB, missing string) {
	t.Helper()
	if os.Getenv(requireEnv) == "1" {
		t.Fatalf("sqltest: %s (%s=1 forbids skipping)", missing, requireEnv)
	}
	t.Skip("sqltest: " + missing)
}
