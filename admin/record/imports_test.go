package record_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
)

// The record keeps the report of an import with its policies or not at all, and the last few of them, however long they are.
func TestImports(t *testing.T) { sqltest.Each(t, imports) }

func imports(t *testing.T, location string) {
	r, log := recordtest.WithAudit(t, location)
	c := set("pay", "api", text("1/1m"), record.Expect{Absent: true})
	c.Action = "import"
	report := record.Imported{
		Rows: 3, Held: 1, Taken: []record.ImportedRow{{Row: 1, Name: "api", Text: "1/1m"}},
		Doubts: []record.ImportedRow{{Row: 2, Name: "log in", Why: "the name", LeftOut: true}},
	}
	require.NoError(t, r.Import(t.Context(), c, "mysql://h/d", report))
	assert.NotNil(t, holds(t, r, "pay", "api"))
	all, err := r.Imports(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	report.Written, report.Doubted = 1, 1
	assert.Equal(t, record.Import{
		ID: all[0].ID, At: all[0].At, By: c.By, App: "pay", Reason: c.Reason, From: "mysql://h/d", Imported: report,
	}, all[0])
	_, revision, err := r.Policy(t.Context(), "pay", "api")
	require.NoError(t, err)
	assert.Equal(t, revision, all[0].ID)

	require.Error(t, r.Import(t.Context(), c, "mysql://h/d", report), "there is one by now")
	all, err = r.Imports(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 1)

	c.Edits = nil
	for i := range 12 {
		long := record.Imported{Rows: i}
		for n := range 300 {
			long.Doubts = append(long.Doubts, record.ImportedRow{Row: int64(n), Name: strings.Repeat("ü", 100), Why: strings.Repeat("why ", 200)})
		}
		require.NoError(t, r.Import(t.Context(), c, "mysql://h/d", long))
	}
	all, err = r.Imports(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 10)
	for i, report := range all {
		assert.Equal(t, []int{11 - i, 300, record.MaxImported}, []int{report.Rows, report.Doubted, len(report.Doubts)})
		assert.Len(t, report.Doubts[0].Name, 100)
		assert.Len(t, report.Doubts[0].Why, 500)
	}
	rows, err := log.List(t.Context(), audit.Filter{Action: "import"})
	require.NoError(t, err)
	assert.Len(t, rows, 2+12, "the policy, and each report")
	assert.Equal(t, `{"rows":11,"written":0,"held":0,"doubts":300}`, rows[0].Detail)
}
