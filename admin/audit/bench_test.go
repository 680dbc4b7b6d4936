package audit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
)

// long returns an audit of many rows: of 50 apps and 40 people, every tenth with a key.
func long(b *testing.B, rows int) *audit.Log {
	b.Helper()
	db := sqltest.Open(b, sqltest.New(b))
	l := audit.New(db, audit.Options{})
	const each = 10_000
	for first := 0; first < rows; first += each {
		require.NoError(b, db.Change(b.Context(), func(ctx context.Context, c *sqldb.Change) error {
			for i := first; i < first+each; i++ {
				r := audit.Row{
					By: audit.Person{ID: fmt.Sprint("local:", i%40), Name: "A Person"}, App: fmt.Sprint("app", i%50),
					Policy: fmt.Sprint("policy", i%200), Action: "set", Reason: "a reason of a few words", Revision: int64(i + 1),
					At: time.UnixMicro(int64(i) * 1e6), Detail: `{"text":["100/1m","200/1m"]}`,
				}
				if i%10 == 0 {
					r.Action, r.Key = "reset-key", fmt.Sprint("user=", i%1000)
				}
				if err := l.Append(ctx, c, r); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return l
}

// A page of a long audit by each filter, and the verification of all.
func BenchmarkLong(b *testing.B) {
	const rows = 200_000
	l := long(b, rows)
	for name, filter := range map[string]audit.Filter{
		"last": {}, "app": {Apps: []string{"app7"}}, "ten apps": {Apps: []string{
			"app0", "app1", "app2", "app3", "app4", "app5", "app6", "app7", "app8", "app9",
		}},
		"policy": {Apps: []string{"app7"}, Policy: "policy7"}, "person": {Person: "local:7"},
		"emergencies": {Emergency: true}, "an action that nobody took": {Action: "import"},
	} {
		b.Run("list/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := l.List(b.Context(), filter); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			report, err := l.Verify(b.Context())
			if err != nil || report.Rows != rows {
				b.Fatal(report, err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/rows, "us/row")
	})
}
