package audit_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
)

// Any filter chooses what it would of a list in memory.
func TestAnyFilter(t *testing.T) { sqltest.Each(t, anyFilter) }

func anyFilter(t *testing.T, location string) {
	a := open(t, location)
	pick := func(rt *rapid.T, name string, n int) string {
		return fmt.Sprint(name, rapid.IntRange(0, n).Draw(rt, name))
	}
	require.NoError(t, a.db.Change(t.Context(), func(ctx context.Context, c *sqldb.Change) error {
		for i := range 700 {
			r := audit.Row{
				By: audit.Person{ID: fmt.Sprint("p", i*7%5)}, App: fmt.Sprint("app", i*i%6), Policy: fmt.Sprint("policy", i%3),
				Action: fmt.Sprint("action", i*i*i%4), Emergency: i%50 == 0, At: start.Add(time.Duration(i) * time.Second),
			}
			if i%5 == 0 {
				r.Key = fmt.Sprint("key", i%7)
			}
			if err := a.Append(ctx, c, r); err != nil {
				return err
			}
		}
		return nil
	}))
	var all []audit.Row
	for before := int64(0); ; before = all[len(all)-1].Seq {
		page := a.list(t, audit.Filter{Before: before})
		all = append(all, page...)
		if len(page) < audit.MaxLimit {
			break
		}
	}
	require.Len(t, all, 700)
	rapid.Check(t, func(rt *rapid.T) {
		maybe := func(name string, n int) string {
			if rapid.IntRange(0, 3).Draw(rt, "with "+name) > 0 {
				return ""
			}
			return pick(rt, name, n)
		}
		f := audit.Filter{
			Policy: maybe("policy", 3), Person: maybe("p", 5), Action: maybe("action", 4),
			Emergency: rapid.IntRange(0, 5).Draw(rt, "emergency") == 0, Before: rapid.Int64Range(0, 701).Draw(rt, "before"),
			Limit: rapid.IntRange(0, 250).Draw(rt, "limit"),
		}
		if rapid.Bool().Draw(rt, "of apps") {
			f.Apps = make([]string, rapid.IntRange(0, 5).Draw(rt, "apps"))
			for i := range f.Apps {
				f.Apps[i] = pick(rt, "app", 7)
			}
		}
		var want []int64
		for _, r := range all {
			if (f.Apps == nil || slices.Contains(f.Apps, r.App)) && (f.Policy == "" || f.Policy == r.Policy) &&
				(f.Person == "" || f.Person == r.By.ID) && (f.Action == "" || f.Action == r.Action) &&
				(!f.Emergency || r.Emergency) && (f.Before == 0 || r.Seq < f.Before) {
				want = append(want, r.Seq)
			}
		}
		limit := f.Limit
		if limit == 0 || limit > audit.MaxLimit {
			limit = audit.MaxLimit
		}
		want = want[:min(len(want), limit)]
		rows, err := a.List(context.Background(), f)
		require.NoError(rt, err)
		var got []int64
		for _, r := range rows {
			got = append(got, r.Seq)
		}
		require.Equal(rt, want, got)
	})
}
