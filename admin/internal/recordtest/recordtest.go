// Package recordtest opens records for tests.
package recordtest

import (
	"testing"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
)

// Open opens the record in the database at a location until the test ends.
func Open(t testing.TB, location string) *record.Record {
	t.Helper()
	r, _ := WithAudit(t, location)
	return r
}

// OpenAt is Open with a clock.
func OpenAt(t testing.TB, location string, now func() time.Time) *record.Record {
	t.Helper()
	r, _ := open(t, location, now)
	return r
}

// WithAudit opens the record in the database at a location, and its audit, until the test ends.
func WithAudit(t testing.TB, location string) (*record.Record, *audit.Log) {
	t.Helper()
	return open(t, location, nil)
}

func open(t testing.TB, location string, now func() time.Time) (*record.Record, *audit.Log) {
	t.Helper()
	db := sqltest.Open(t, location)
	log := audit.New(db, audit.Options{Now: now})
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Errorf("recordtest: %v", err)
		}
	})
	return record.New(db, log), log
}
