package ratetable_test

import (
	"database/sql"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/admin/ratetable"
	"github.com/weir-go/weir/core/policies"
)

func number(n int64) sql.Null[int64] { return sql.Null[int64]{V: n, Valid: true} }

// good is a row without a doubt.
func good(id int64, name string) ratetable.Row {
	return ratetable.Row{ID: id, Name: name, Apps: "pay, shop", Rate: number(5), MaxPermits: number(20), Creator: "anna"}
}

func TestPlan(t *testing.T) {
	plan, err := ratetable.PlanOf(ratetable.Table{Name: 50, Apps: 1000, Rows: []ratetable.Row{good(1, "login")}}, "pay")
	require.NoError(t, err)
	assert.Empty(t, plan.Doubts)
	require.Len(t, plan.Policies, 1)
	assert.Equal(t, "login", plan.Policies[0].Name)
	assert.Equal(t, policies.Policy{Text: "5/1s burst 20 token-bucket", Apps: []string{"shop"}}, plan.Policies[0].Policy)

	_, err = ratetable.PlanOf(ratetable.Table{}, "two apps")
	assert.ErrorContains(t, err, "owner")
}

// What a row leaves open is listed, and the row is left out.
func TestDoubts(t *testing.T) {
	for name, tc := range map[string]struct {
		row  func(*ratetable.Row)
		says string
		in   bool // the row is planned all the same
	}{
		"a name with a space":       {func(r *ratetable.Row) { r.Name = "log in" }, "the name", false},
		"no name":                   {func(r *ratetable.Row) { r.Name = "" }, "the name", false},
		"a name that is cut":        {func(r *ratetable.Row) { r.Name = strings.Repeat("x", 50) }, "exactly the 50 characters", false},
		"no apps":                   {func(r *ratetable.Row) { r.Apps = "" }, "apps is empty", false},
		"commas alone":              {func(r *ratetable.Row) { r.Apps = " , ," }, "apps is empty", false},
		"an app with a star":        {func(r *ratetable.Row) { r.Apps = "pay,.*" }, `".*"`, false},
		"apps that are cut":         {func(r *ratetable.Row) { r.Apps = strings.Repeat("pay,", 250) }, "exactly the 1000 characters", false},
		"a rate of 0":               {func(r *ratetable.Row) { r.Rate = number(0) }, "rate is 0", false},
		"a negative rate":           {func(r *ratetable.Row) { r.Rate = number(-1) }, "rate is -1", false},
		"no rate":                   {func(r *ratetable.Row) { r.Rate.Valid = false }, "rate is NULL", false},
		"0 permits":                 {func(r *ratetable.Row) { r.MaxPermits = number(0) }, "max_permits is 0", false},
		"no permits":                {func(r *ratetable.Row) { r.MaxPermits.Valid = false }, "max_permits is NULL", false},
		"a rate beyond the grammar": {func(r *ratetable.Row) { r.Rate = number(1 << 60) }, "1152921504606846976", false},
		"no creator":                {func(r *ratetable.Row) { r.Creator = " " }, "created_by", true},
	} {
		t.Run(name, func(t *testing.T) {
			row := good(7, "login")
			tc.row(&row)
			plan, err := ratetable.PlanOf(ratetable.Table{Name: 50, Apps: 1000, Rows: []ratetable.Row{good(1, "api"), row}}, "pay")
			require.NoError(t, err)
			require.Len(t, plan.Doubts, 1)
			assert.Contains(t, plan.Doubts[0].String(), tc.says)
			assert.Contains(t, plan.Doubts[0].String(), "row 7")
			assert.Equal(t, tc.in, !plan.Doubts[0].LeftOut)
			if tc.in {
				assert.Len(t, plan.Policies, 2)
			} else {
				assert.Len(t, plan.Policies, 1, "the others are planned")
			}
		})
	}
	plan, err := ratetable.PlanOf(ratetable.Table{Rows: []ratetable.Row{good(1, "Login"), good(2, "login"), good(3, "api")}}, "pay")
	require.NoError(t, err)
	require.Len(t, plan.Doubts, 2)
	assert.Contains(t, plan.Doubts[0].Why, "[1 2]")
	assert.Len(t, plan.Policies, 1)
}

// Whatever stands in the rows, each is planned or has a doubt, and what is planned is a document that may be published.
func TestEachRowIsPlannedOrDoubted(t *testing.T) {
	names := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-zA-Z]{1,3}`))
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ratetable.Row {
			nullable := func(name string) sql.Null[int64] {
				return sql.Null[int64]{V: rapid.Int64().Draw(t, name), Valid: rapid.Bool().Draw(t, name+" is there")}
			}
			return ratetable.Row{
				Name: names.Draw(t, "name"), Apps: strings.Join(rapid.SliceOfN(names, 0, 4).Draw(t, "apps"), ","),
				Rate: nullable("rate"), MaxPermits: nullable("permits"), Creator: rapid.String().Draw(t, "creator"),
			}
		}), 0, 8).Draw(t, "rows")
		for i := range rows {
			rows[i].ID = int64(i)
		}
		plan, err := ratetable.PlanOf(ratetable.Table{Name: 50, Apps: 1000, Rows: rows}, "pay")
		require.NoError(t, err)
		left := map[int64]bool{}
		for _, d := range plan.Doubts {
			if d.LeftOut {
				left[d.Row.ID] = true
			}
		}
		document := &policies.Document{App: "pay", Policies: map[string]policies.Policy{}}
		for _, p := range plan.Policies {
			assert.False(t, left[p.Row.ID])
			left[p.Row.ID] = true // seen
			document.Policies[p.Name] = p.Policy
			assert.Empty(t, p.Policy.Tiers)
		}
		assert.Len(t, slices.Collect(maps.Keys(left)), len(rows))
		require.NoError(t, document.Check())
	})
}
