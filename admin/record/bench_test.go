package record_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
)

// fill gives a record as many policies as it may have: ten of each of a thousand apps.
func fill(b testing.TB, r *record.Record) {
	b.Helper()
	for app := range record.MaxApps {
		c := record.Change{App: fmt.Sprint("app", app), Action: "apply"}
		for i := range record.MaxPolicies/record.MaxApps - 1 {
			c.Edits = append(c.Edits, record.Edit{Name: fmt.Sprint("policy", i), Policy: text("100/1m; shadow")})
		}
		must(b, r, c)
	}
}

// A change of one policy, and of one for all apps, in a record that is full.
func BenchmarkChange(b *testing.B) {
	r := recordtest.Open(b, sqltest.New(b))
	fill(b, r)
	for _, app := range []string{"app7", policies.AllApps} {
		b.Run(app, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				must(b, r, set(app, "one", text(fmt.Sprintf("%d/1m", n+1)), record.Expect{}))
			}
		})
	}
}

// A record that is full refuses one more, of policies and of apps, and goes on with those that it has.
func TestFull(t *testing.T) {
	r := recordtest.Open(t, sqltest.New(t))
	fill(t, r)
	must(t, r, set(policies.AllApps, "one", text("1/1m"), record.Expect{}))
	var invalid *record.InvalidError
	_, err := r.Change(t.Context(), record.Change{App: "one-more", Action: "add"})
	require.ErrorAs(t, err, &invalid)
	c := record.Change{App: "app1", Action: "apply"}
	for i := range 1000 {
		c.Edits = append(c.Edits, record.Edit{Name: fmt.Sprint("more", i), Policy: text("1/1m")})
	}
	_, err = r.Change(t.Context(), c)
	require.ErrorAs(t, err, &invalid)
	must(t, r, set("app1", "policy1", text("2/1m"), record.Expect{}))
}

// Two hundred people change policies at once, through two programs.
func BenchmarkCrowd(b *testing.B) {
	location := sqltest.New(b)
	records := []*record.Record{recordtest.Open(b, location), recordtest.Open(b, location)}
	const people = 200
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		each := make([]time.Duration, people)
		var work sync.WaitGroup
		for i := range people {
			work.Go(func() {
				began := time.Now()
				c := set("pay", fmt.Sprint("policy", i), text(fmt.Sprintf("%d/1m", n+1)), record.Expect{})
				if _, err := records[i%2].Change(b.Context(), c); err != nil {
					b.Error(err)
				}
				each[i] = time.Since(began)
			})
		}
		work.Wait()
		took = append(took, each...)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
}
