package audit

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/internal/sqldb"
)

// MaxLimit bounds the rows of one List.
const MaxLimit = 200

// Filter chooses rows. The zero Filter chooses all.
type Filter struct {
	Apps      []string // rows of one of these; nil: of any app, and those of none
	Policy    string
	Person    string // the ID
	Action    string
	Emergency bool  // rows of emergencies alone
	Unseen    bool  // emergencies that nobody has looked at
	Before    int64 // rows before this one; 0: the last ones
	Limit     int   // at most MaxLimit, which 0 is as well
}

// List returns rows, the latest first.
func (l *Log) List(ctx context.Context, f Filter) ([]Row, error) {
	ofSome := f.Apps != nil
	if ofSome {
		f.Apps = slices.Compact(slices.Sorted(slices.Values(f.Apps)))
		f.Apps = slices.DeleteFunc(f.Apps, func(app string) bool { return !isName(app) })
	}
	if ofSome && len(f.Apps) == 0 || !isName(f.Policy) || !isName(f.Action) {
		return nil, nil // no row has them, and the database may not even have such a text
	}
	if f.Limit <= 0 || f.Limit > MaxLimit {
		f.Limit = MaxLimit
	}
	apps := [][]string{f.Apps}
	if len(f.Apps) <= fewApps { // one after the other, because an index finds the last rows of one app, not of two
		apps = slices.Collect(slices.Chunk(f.Apps, 1))
	}
	if !ofSome {
		apps = [][]string{nil}
	}
	var all []Row
	err := l.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		after := int64(0)
		for _, of := range apps {
			f.Apps = of
			found, err := f.read(ctx, t, after)
			if err != nil {
				return err
			}
			all = append(all, found...)
			slices.SortFunc(all, func(a, b Row) int { return cmp.Compare(b.Seq, a.Seq) })
			if len(all) >= f.Limit { // rows of other apps before these do not matter
				all = all[:f.Limit]
				after = all[f.Limit-1].Seq
			}
		}
		return nil
	})
	return all, err
}

// fewApps is the number of apps of which each is looked for by a query.
const fewApps = 100

// read returns rows after one, the latest first.
func (f *Filter) read(ctx context.Context, t sqldb.Tx, after int64) (all []Row, err error) {
	query, args := f.query(after)
	err = t.Each(ctx, func(row sqldb.Row) error {
		var r Row
		var key, seenBy, seenName *string
		var seenAt *int64
		if err := scan(row, &r, &key, &seenAt, &seenBy, &seenName); err != nil {
			return err
		}
		if key != nil {
			r.Key = *key
		}
		if seenAt != nil && *seenAt != 0 {
			r.SeenAt, r.SeenBy = time.UnixMicro(*seenAt).UTC(), Person{*seenBy, *seenName}
		}
		all = append(all, r)
		return nil
	}, query, args...)
	return all, err
}

// columns are those that scan reads.
const columns = `a.seq, a.at, a.person, a.name, a.app, a.policy, a.action, a.reason, a.revision, a.was, a.forced,
	a.emergency, a.mark, a.detail, a.outcome, a.hash`

// scan reads the columns of a row, and more.
func scan(row sqldb.Row, r *Row, more ...any) error {
	var at int64
	err := row.Scan(append([]any{
		&r.Seq, &at, &r.By.ID, &r.By.Name, &r.App, &r.Policy, &r.Action, &r.Reason, &r.Revision, &r.Was, &r.Forced,
		&r.Emergency, &r.Mark, &r.Detail, &r.Outcome, &r.Hash,
	}, more...)...)
	r.At = time.UnixMicro(at).UTC()
	return err
}

// query returns the query of a filter for the rows after one.
func (f *Filter) query(after int64) (string, []any) {
	var b strings.Builder
	var args []any
	b.WriteString(`SELECT ` + columns + `, k.text, e.at, e.person, e.name FROM weir_audit a
		LEFT JOIN weir_audit_keys k ON k.seq = a.seq LEFT JOIN weir_emergencies e ON e.seq = a.seq WHERE 1 = 1`)
	where := func(condition string, values ...any) {
		b.WriteString(" AND " + condition)
		args = append(args, values...)
	}
	if f.Apps != nil {
		apps := make([]any, len(f.Apps))
		for i, app := range f.Apps {
			apps[i] = app
		}
		where("a.app IN (?"+strings.Repeat(", ?", len(apps)-1)+")", apps...)
	}
	for _, equal := range []struct{ column, value string }{
		{"a.policy", f.Policy}, {"a.person", line(f.Person, maxLine)}, {"a.action", f.Action},
	} {
		if equal.value != "" {
			where(equal.column+" = ?", equal.value)
		}
	}
	switch {
	case f.Unseen:
		where("a.seq IN (SELECT seq FROM weir_emergencies WHERE at = 0)")
	case f.Emergency:
		where("a.seq IN (SELECT seq FROM weir_emergencies)")
	}
	if after > 0 {
		where("a.seq > ?", after)
	}
	if f.Before > 0 {
		where("a.seq < ?", f.Before)
	}
	b.WriteString(" ORDER BY a.seq DESC LIMIT ?")
	return b.String(), append(args, f.Limit)
}
