package audit

import (
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
	Outcome   string
	Key       string
	Emergency bool // rows of emergencies alone
	Unseen    bool // of these, those that nobody has looked at
	Since     time.Time
	Until     time.Time
	Before    int64 // rows before this one; 0: the last ones
	Limit     int   // at most MaxLimit, which 0 is as well
}

// List returns rows, the latest first.
func (l *Log) List(ctx context.Context, f Filter) ([]Row, error) {
	if f.Apps != nil {
		f.Apps = slices.DeleteFunc(slices.Clone(f.Apps), func(app string) bool { return !isName(app) })
	}
	if f.Apps != nil && len(f.Apps) == 0 || !isName(f.Policy) || !isName(f.Action) || !isName(f.Outcome) {
		return nil, nil // no row has them, and the database may not even have such a text
	}
	query, args := f.query()
	var all []Row
	err := l.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		return t.Each(ctx, func(row sqldb.Row) error {
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
	})
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

// query returns the query of a filter.
func (f *Filter) query() (string, []any) {
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
		{"a.policy", f.Policy}, {"a.person", line(f.Person, maxLine)}, {"a.action", f.Action}, {"a.outcome", f.Outcome},
	} {
		if equal.value != "" {
			where(equal.column+" = ?", equal.value)
		}
	}
	if f.Key != "" {
		where("a.seq IN (SELECT seq FROM weir_audit_keys WHERE digest = ?)", digest(line(f.Key, maxKey)))
	}
	if f.Emergency || f.Unseen {
		where("e.seq = a.seq")
	}
	if f.Unseen {
		where("e.at = 0")
	}
	if !f.Since.IsZero() {
		where("a.at >= ?", f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		where("a.at < ?", f.Until.UnixMicro())
	}
	if f.Before > 0 {
		where("a.seq < ?", f.Before)
	}
	limit := f.Limit
	if limit <= 0 || limit > MaxLimit {
		limit = MaxLimit
	}
	b.WriteString(" ORDER BY a.seq DESC LIMIT ?")
	return b.String(), append(args, limit)
}
