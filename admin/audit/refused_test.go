package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/internal/logtest"
)

// attempts returns the number that a row stands for.
func attempts(t *testing.T, r audit.Row) int {
	t.Helper()
	var detail struct{ Attempts int }
	require.NoError(t, json.Unmarshal([]byte(r.Detail), &detail))
	return detail.Attempts
}

// Refused attempts become a row for a person, action and app, with their number.
func TestRefused(t *testing.T) { sqltest.Each(t, refused) }

func refused(t *testing.T, location string) {
	a := open(t, location)
	for range 3 {
		a.Refused(anna, "write", "pay")
	}
	a.Refused(anna, "look", "pay")
	a.Refused(boris, "write", "pay")
	a.Refused(boris, "write", "no name\x00")
	require.NoError(t, a.Close())
	all := a.list(t, audit.Filter{})
	require.Len(t, all, 4)
	found := map[string]int{}
	for _, r := range all {
		assert.Equal(t, audit.Refused, r.Outcome)
		found[fmt.Sprint(r.By.Name, " ", r.Action, " ", r.App)] = attempts(t, r)
	}
	assert.Equal(t, map[string]int{"Anna write pay": 3, "Anna look pay": 1, "Boris write pay": 1, "Boris write ": 1}, found)
	report, err := a.Verify(t.Context())
	require.NoError(t, err)
	assert.Nil(t, report.Fault)
	a.Refused(anna, "write", "pay") // after the end it counts nothing, and starts nothing
}

// A flood of names, by one person or by many, makes no more rows than there is room for, loses no attempt, and hides
// nobody who came before.
func TestRefusedFlood(t *testing.T) {
	a := open(t, sqltest.New(t))
	a.Refused(boris, "write", "pay")
	for i := range 100_000 {
		a.Refused(anna, "write", fmt.Sprint("app", i))
	}
	for i := range 100_000 {
		a.Refused(audit.Person{ID: fmt.Sprint("local:", i), Name: "x"}, "write", "pay")
	}
	require.NoError(t, a.Close())
	all := a.list(t, audit.Filter{})
	assert.Len(t, all, 100)
	total, of := 0, map[string]int{}
	for _, r := range all {
		total += attempts(t, r)
		of[r.By.ID]++
	}
	assert.Equal(t, 200_001, total)
	assert.Equal(t, 1, of[boris.ID])
	assert.Equal(t, 10, of[anna.ID])
	assert.Equal(t, 1, of[""], "the rest of all others")
}

// Attempts are written when a minute is over, and kept while the database does not answer.
func TestRefusedEachMinute(t *testing.T) {
	db := sqltest.Open(t, sqltest.New(t))
	var log logtest.Log
	a := audited{Log: audit.New(db, audit.Options{Log: log.Logger()}), db: db}
	a.SetMinute(10 * time.Millisecond)
	rename := func(from, to string) {
		require.NoError(t, db.Write(t.Context(), func(ctx context.Context, tx sqldb.Tx) error {
			_, err := tx.Exec(ctx, "ALTER TABLE "+from+" RENAME TO "+to)
			return err
		}))
	}
	rename("weir_audit", "away")
	a.Refused(anna, "write", "pay")
	a.Refused(anna, "write", "pay")
	awaitThat(t, func() bool { return len(log.With("not in the audit yet")) > 1 })
	rename("away", "weir_audit")
	awaitThat(t, func() bool { return len(a.list(t, audit.Filter{})) > 0 })
	require.NoError(t, a.Close())
	all := a.list(t, audit.Filter{})
	require.Len(t, all, 1)
	assert.Equal(t, 2, attempts(t, all[0]))
}

func awaitThat(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, time.Minute, 5*time.Millisecond)
}
