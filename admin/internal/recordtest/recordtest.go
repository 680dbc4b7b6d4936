// Package recordtest opens records for tests.
package recordtest

import (
	"testing"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
)

// Open opens the record in the database at a location until the test ends.
func Open(t testing.TB, location string) *record.Record {
	t.Helper()
	return record.New(sqltest.Open(t, location))
}
