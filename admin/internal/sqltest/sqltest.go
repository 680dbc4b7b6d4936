// Package sqltest gives tests databases of their own.
package sqltest

import (
	"path/filepath"
	"testing"

	_ "github.com/weir-go/weir/admin/record/drivers" // which every test of a database needs
)

// SQLite returns the location of a database in a file that goes with the test.
func SQLite(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "weir.db")
}
