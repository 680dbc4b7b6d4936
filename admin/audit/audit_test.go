package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
)

func TestMain(m *testing.M) { os.Exit(sqltest.Main(m)) }

var (
	anna  = audit.Person{ID: "local:anna", Name: "Anna"}
	boris = audit.Person{ID: "local:boris", Name: "Boris"}
)

// start is the time at which a test's clock stands at first.
var start = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// audited is a database with an audit, whose clock goes on by a second with each row.
type audited struct {
	*audit.Log
	db    *sqldb.DB
	lines *bytes.Buffer
}

func open(t *testing.T, location string) audited {
	t.Helper()
	a := audited{db: sqltest.Open(t, location), lines: new(bytes.Buffer)}
	now := start
	a.Log = audit.New(a.db, audit.Options{Lines: a.lines, Now: func() time.Time {
		now = now.Add(time.Second)
		return now
	}})
	t.Cleanup(func() { assert.NoError(t, a.Close()) })
	return a
}

func (a audited) write(t *testing.T, rows ...audit.Row) {
	t.Helper()
	for _, r := range rows {
		require.NoError(t, a.Write(t.Context(), r))
	}
}

func (a audited) list(t *testing.T, f audit.Filter) []audit.Row {
	t.Helper()
	rows, err := a.List(t.Context(), f)
	require.NoError(t, err)
	return rows
}

// exec runs a statement as somebody would who can write to the database.
func (a audited) exec(t *testing.T, statement string) {
	t.Helper()
	require.NoError(t, a.db.Write(t.Context(), func(ctx context.Context, tx sqldb.Tx) error {
		n, err := tx.Exec(ctx, statement)
		assert.NotZero(t, n, statement)
		return err
	}))
}

// What is written can be read, by every filter, and the chain holds.
func TestRows(t *testing.T) { sqltest.Each(t, rows) }

func rows(t *testing.T, location string) {
	a := open(t, location)
	a.write(t,
		audit.Row{
			By: anna, App: "pay", Policy: "api", Action: "set", Reason: "faster", Revision: 7, Was: 3,
			Detail: `{"text":["1/1m","2/1m"]}`,
		},
		audit.Row{By: boris, App: "pay", Policy: "api", Action: "reset-key", Reason: "complains", Key: "user=7"},
		audit.Row{
			By: boris, App: "web", Policy: "api", Action: "set", Revision: 8, Forced: true, Emergency: true, Reason: "attack",
		},
		audit.Row{By: anna, Action: "token"},
		audit.Row{By: anna, App: "web", Action: "look", Key: "user=7"},
	)
	all := a.list(t, audit.Filter{})
	require.Len(t, all, 5)
	assert.Equal(t, audit.Row{
		Seq: 1, At: start.Add(time.Second), By: anna, App: "pay", Policy: "api", Action: "set", Reason: "faster",
		Revision: 7, Was: 3, Detail: `{"text":["1/1m","2/1m"]}`, Outcome: audit.Done, Hash: all[4].Hash,
	}, all[4])
	assert.Equal(t, "user=7", all[0].Key)
	assert.NotEqual(t, all[0].Mark, all[3].Mark, "that two rows are of one key cannot be seen without its secrets")
	assert.True(t, all[2].Forced && all[2].Emergency)

	seqs := func(f audit.Filter) (found []int64) {
		for _, r := range a.list(t, f) {
			found = append(found, r.Seq)
		}
		return found
	}
	for name, test := range map[string]struct {
		filter audit.Filter
		want   []int64
	}{
		"app":       {audit.Filter{Apps: []string{"pay"}}, []int64{2, 1}},
		"apps":      {audit.Filter{Apps: []string{"pay", "web", "gone"}}, []int64{5, 3, 2, 1}},
		"no app":    {audit.Filter{Apps: []string{}}, nil},
		"policy":    {audit.Filter{Apps: []string{"web"}, Policy: "api"}, []int64{3}},
		"person":    {audit.Filter{Person: boris.ID}, []int64{3, 2}},
		"action":    {audit.Filter{Action: "set"}, []int64{3, 1}},
		"emergency": {audit.Filter{Emergency: true}, []int64{3}},
		"before":    {audit.Filter{Before: 4, Limit: 2}, []int64{3, 2}},
		"limit":     {audit.Filter{Limit: 1}, []int64{5}},
		"hostile":   {audit.Filter{Person: "' OR 1=1 --", Action: "\x00\xff"}, nil},
	} {
		assert.Equal(t, test.want, seqs(test.filter), name)
	}

	// An emergency is looked at once, and by its first reader.
	assert.Equal(t, []int64{3}, seqs(audit.Filter{Unseen: true}))
	look := func(seq int64, refused error) error {
		return a.Seen(t.Context(), seq, anna, "", func(_ context.Context, _ sqldb.Tx, row audit.Row) error {
			assert.Equal(t, seq, row.Seq)
			assert.Equal(t, "attack", row.Reason)
			return refused
		})
	}
	refused := errors.New("not by you")
	require.ErrorIs(t, look(3, refused), refused)
	assert.Equal(t, []int64{3}, seqs(audit.Filter{Unseen: true}))
	for range 2 {
		require.NoError(t, look(3, nil))
	}
	for _, seq := range []int64{2, 99} {
		require.ErrorIs(t, look(seq, nil), audit.ErrNoEmergency)
	}
	assert.Empty(t, seqs(audit.Filter{Unseen: true}))
	assert.Equal(t, anna, a.list(t, audit.Filter{Emergency: true})[0].SeenBy)
	all = a.list(t, audit.Filter{})
	require.Len(t, all, 6, "that it was looked at is one row more")

	report, err := a.Verify(t.Context())
	require.NoError(t, err)
	assert.Equal(t, audit.Report{Rows: 6, Keys: 2, End: sqldb.Link{Seq: 6, Hash: all[0].Hash}}, report)
}

// A row that was changed, removed, swapped or added, a chain that was cut, and a key that was exchanged are found, and
// the first fault is named.
func TestVerifyFinds(t *testing.T) { sqltest.Each(t, verifyFinds) }

func verifyFinds(t *testing.T, location string) {
	a := open(t, location)
	for i := range 20 {
		a.write(t, audit.Row{
			By: anna, App: "pay", Policy: "api", Action: "set", Reason: fmt.Sprint("reason ", i), Key: fmt.Sprint("user=", i),
		})
	}
	kept, err := audit.Links(bytes.NewReader(a.lines.Bytes()))
	require.NoError(t, err)
	require.Len(t, kept, 20)
	verify := func(kept ...sqldb.Link) *audit.Fault {
		t.Helper()
		report, err := a.Verify(t.Context(), kept...)
		require.NoError(t, err)
		return report.Fault
	}
	require.Nil(t, verify(kept...))

	// set is a statement on one row, and move one that gives a row another number.
	set := func(table string, seq int, what string) string {
		return fmt.Sprintf(`UPDATE %s SET %s WHERE seq = %d`, table, what, seq)
	}
	row := func(seq int, what string) string { return set("weir_audit", seq, what) }
	move := func(seq, to int) string { return row(seq, fmt.Sprint("seq = ", to)) }
	head := func(what string) string { return "UPDATE weir_head SET " + what }
	third := a.list(t, audit.Filter{Before: 4, Limit: 1})[0]
	undo := []string{row(3, fmt.Sprintf("mark = '%s', hash = '%s'", third.Mark, third.Hash))}
	type statements = []string
	// Each is done, found, and undone.
	for name, test := range map[string]struct {
		do, undo statements
		seq      int64
		says     string
	}{
		"person": {statements{row(7, "person = 'local:eve'")}, statements{row(7, "person = 'local:anna'")}, 7, "changed"},
		"reason": {statements{row(20, "reason = 'other'")}, statements{row(20, "reason = 'reason 19'")}, 20, "changed"},
		"forced": {statements{row(1, "forced = 1")}, statements{row(1, "forced = 0")}, 1, "changed"},
		"at":     {statements{row(3, "at = at + 1")}, statements{row(3, "at = at - 1")}, 3, "changed"},
		"moved": {
			statements{row(3, "policy = 'apis', action = 'et'")},
			statements{row(3, "policy = 'api', action = 'set'")},
			3, "changed",
		},
		"mark":    {statements{row(3, "mark = hash")}, undo, 3, "changed"},
		"no hash": {statements{row(3, "hash = 'none'")}, undo, 3, "changed"},
		"key": {
			statements{set("weir_audit_keys", 9, "text = 'user=99'")},
			statements{set("weir_audit_keys", 9, "text = 'user=8'")},
			9, "key",
		},
		"removed": {statements{move(11, -1)}, statements{move(-1, 11)}, 11, "missing"},
		"first":   {statements{move(1, -1)}, statements{move(-1, 1)}, 1, "missing"},
		"cut":     {statements{move(20, -1)}, statements{move(-1, 20)}, 20, "missing"},
		"swapped": {
			statements{move(5, 99), move(6, 5), move(99, 6)}, statements{move(5, 99), move(6, 5), move(99, 6)}, 5, "changed",
		},
		"added":    {statements{move(20, 21)}, statements{move(21, 20)}, 20, "missing"},
		"head":     {statements{head("links = 19")}, statements{head("links = 20")}, 20, "added by hand"},
		"its hash": {statements{head("link = 'x'")}, statements{head("link = '" + kept[19].Hash + "'")}, 20, "ends with"},
	} {
		for _, statement := range test.do {
			a.exec(t, statement)
		}
		fault := verify()
		if assert.NotNil(t, fault, name) {
			assert.Equal(t, test.seq, fault.Seq, name)
			assert.Contains(t, fault.Text, test.says, name)
		}
		for _, statement := range test.undo {
			a.exec(t, statement)
		}
		require.Nil(t, verify(kept...), name)
	}

	// A chain that was computed anew, here with a row less, differs from the lines that are kept elsewhere alone.
	a.exec(t, `DELETE FROM weir_audit`)
	a.exec(t, `DELETE FROM weir_audit_keys`)
	a.exec(t, `UPDATE weir_head SET links = 0, link = ''`)
	for range 19 {
		a.write(t, audit.Row{By: boris, App: "pay", Action: "set"})
	}
	require.Nil(t, verify())
	require.NotNil(t, verify(kept...))
	assert.Equal(t, int64(1), verify(kept...).Seq)
	assert.Equal(t, int64(20), verify(kept[19]).Seq)
}

// A chain of several pages is verified as a whole.
func TestLongChain(t *testing.T) {
	a := open(t, sqltest.New(t))
	const n = 4500
	require.NoError(t, a.db.Change(t.Context(), func(ctx context.Context, c *sqldb.Change) error {
		for range n {
			if err := a.Append(ctx, c, audit.Row{By: anna, Action: "set"}); err != nil {
				return err
			}
		}
		return nil
	}))
	report, err := a.Verify(t.Context())
	require.NoError(t, err)
	assert.Nil(t, report.Fault)
	assert.Equal(t, int64(n), report.Rows)
	a.exec(t, `DELETE FROM weir_audit WHERE seq > 3999`)
	report, err = a.Verify(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(4000), report.Fault.Seq)
}

// The encoding is the one that the package comment describes, so that others can verify a chain.
func TestEncoding(t *testing.T) {
	a := open(t, sqltest.New(t))
	a.write(t,
		audit.Row{
			At: time.UnixMicro(1_700_000_000_123_456), By: audit.Person{ID: "local:ä", Name: "Ä"}, App: "pay", Action: "set",
		},
		audit.Row{
			At: time.UnixMicro(1_700_000_001_000_000), By: anna, App: "pay", Policy: "api", Action: "set", Emergency: true,
			Revision: 1,
		})
	all := a.list(t, audit.Filter{})
	assert.Equal(t, []string{
		"35ac4918725f912d2af893afeaf1c084a2d8afb5c28fb2e3a8486e9fce6aeda3",
		"5bf198a43d1227c44fce302986491cac20e48c904325bcaa3c10950537d611f9",
	}, []string{all[1].Hash, all[0].Hash})
}

// Keys are forgotten with the secrets of their marks; the rows and the chain stay, and that it was done is a row.
func TestForgetKeys(t *testing.T) { sqltest.Each(t, forgetKeys) }

func forgetKeys(t *testing.T, location string) {
	a := open(t, location)
	for i := range 4 {
		a.write(t, audit.Row{By: anna, App: "pay", Action: "reset-key", Key: fmt.Sprint("user=", i)})
	}
	n, err := a.ForgetKeys(t.Context(), boris, "it is the law", start.Add(3*time.Second))
	require.NoError(t, err)
	assert.Equal(t, int64(2), n)
	var keys []string
	for _, r := range slices.Backward(a.list(t, audit.Filter{Action: "reset-key"})) {
		keys = append(keys, r.Key)
		assert.NotEmpty(t, r.Mark)
	}
	assert.Equal(t, []string{"", "", "user=2", "user=3"}, keys)
	last := a.list(t, audit.Filter{Limit: 1})[0]
	assert.Equal(t, "forget-keys", last.Action)
	assert.Equal(t, boris, last.By)
	assert.JSONEq(t, `{"keys":2,"before":"2026-03-01T03:00:03Z"}`, last.Detail)
	report, err := a.Verify(t.Context())
	require.NoError(t, err)
	assert.Nil(t, report.Fault)
	assert.Equal(t, int64(2), report.Keys)
	assert.NotContains(t, a.lines.String(), "user=", "the lines have no keys")
}

// A row is written with its change, or not at all; the lines have what was written, one line each.
func TestOnlyWithItsChange(t *testing.T) { sqltest.Each(t, onlyWithItsChange) }

func onlyWithItsChange(t *testing.T, location string) {
	a := open(t, location)
	require.Error(t, a.db.Change(t.Context(), func(ctx context.Context, c *sqldb.Change) error {
		require.NoError(t, a.Append(ctx, c, audit.Row{By: anna, Action: "set", Emergency: true, Key: "user=7"}))
		return fmt.Errorf("no")
	}))
	assert.Empty(t, a.list(t, audit.Filter{}))
	assert.Empty(t, a.lines.String())
	a.write(t, audit.Row{
		By:     audit.Person{ID: "local:eve\n\x00", Name: "\xff\x1b[31m" + strings.Repeat("ä", 300)},
		Action: "set", Reason: "a\nb",
	})
	r := a.list(t, audit.Filter{})[0]
	assert.Equal(t, "local:eve\ufffd\ufffd", r.By.ID)
	assert.Equal(t, "\ufffd\ufffd[31m"+strings.Repeat("ä", 249), r.By.Name)
	assert.Equal(t, "a\ufffdb", r.Reason)
	line, rest, _ := strings.Cut(a.lines.String(), "\n")
	assert.Empty(t, rest)
	var said map[string]any
	require.NoError(t, json.Unmarshal([]byte(line), &said))
	assert.Equal(t, map[string]any{
		"audit": 1.0, "at": "2026-03-01T03:00:02Z", "person": r.By.ID, "name": r.By.Name, "action": "set",
		"reason": r.Reason, "outcome": "done", "hash": r.Hash,
	}, said)

	// What no row can have is an error, and no row.
	for name, odd := range map[string]audit.Row{
		"app": {App: "a b"}, "long": {Action: strings.Repeat("x", 65)}, "detail": {Detail: "{"},
		"long detail": {Detail: `"` + strings.Repeat("x", audit.MaxDetail) + `"`}, "policy": {Policy: "é"},
	} {
		require.Error(t, a.Write(t.Context(), odd), name)
	}
	assert.Len(t, a.list(t, audit.Filter{}), 1)
}

// Links finds rows between other lines, and leaves out those that may not have been written.
func TestLinks(t *testing.T) {
	links, err := audit.Links(strings.NewReader(`2026/03/01 03:00:00 INFO weir-admin: ready
{"level":"INFO","msg":"a line"}
<6>{"audit":1,"action":"set","outcome":"done","hash":"aa"}
{"audit":2,"action":"set","outcome":"unknown","hash":"bb"}
{"audit":"x"}
{"audit":2,"action":"look","outcome":"refused","hash":"cc"}`))
	require.NoError(t, err)
	assert.Equal(t, []sqldb.Link{{Seq: 1, Hash: "aa"}, {Seq: 2, Hash: "cc"}}, links)
}
