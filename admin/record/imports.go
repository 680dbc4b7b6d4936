package record

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
)

// Bounds of the reports of imports, which take 2 MB at most.
const (
	keptImports = 10  // of all apps; older ones are forgotten
	MaxImported = 200 // rows in each list of a report
	maxWhy      = 500 // bytes of a doubt
	maxRowName  = 100 // bytes of the name that a row has
)

// Import is the report of policies that were imported from the table of an older limiter.
type Import struct {
	ID     int64 // the revision of the change
	At     time.Time
	By     audit.Person
	App    string // that the policies belong to
	Reason string
	From   string // the place of the table, without a user or password
	Imported
}

// Imported is the content of a report.
type Imported struct {
	Rows    int `json:"rows"`              // of the table
	Written int `json:"written,omitempty"` // policies
	Held    int `json:"held,omitempty"`    // policies that the record had already
	Doubted int `json:"doubted,omitempty"` // doubts
	// Taken are the first MaxImported policies that were written, and Doubts the first doubts.
	Taken  []ImportedRow `json:"taken,omitempty"`
	Doubts []ImportedRow `json:"doubts,omitempty"`
}

// ImportedRow is a row of the table, and what has become of it.
type ImportedRow struct {
	Row  int64  `json:"row"`            // its id
	Name string `json:"name"`           // of the policy
	Text string `json:"text,omitempty"` // of a policy that was written
	// Why is the doubt, and LeftOut whether there is no policy because of it.
	Why     string `json:"why,omitempty"`
	LeftOut bool   `json:"leftOut,omitempty"`
}

// boundedRows returns as many rows as a report has, without what is too long.
func boundedRows(rows []ImportedRow) []ImportedRow {
	rows = slices.Clone(rows[:min(len(rows), MaxImported)])
	for n := range rows {
		rows[n].Name, rows[n].Why = cut(rows[n].Name, maxRowName), cut(rows[n].Why, maxWhy)
	}
	return rows
}

// Import makes a change whose policies come from a table, and keeps the report in the same transaction: of the rows
// written and of the doubts, report has all. A change without edits is no more than its report.
func (r *Record) Import(ctx context.Context, c Change, from string, report Imported) error {
	report.Written, report.Doubted = len(report.Taken), len(report.Doubts)
	report.Taken, report.Doubts = boundedRows(report.Taken), boundedRows(report.Doubts)
	keep := func(ctx context.Context, t *sqldb.Change) error {
		body, err := json.Marshal(report)
		if err != nil {
			return err
		}
		at, id := r.now(), t.Revision()
		if _, err := t.Exec(ctx, `INSERT INTO weir_imports (id, at, person, shown, app, reason, place, body)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			id, at.UnixMicro(), c.By.ID, c.By.Name, c.App, c.Reason, from, string(body)); err != nil {
			return err
		}
		if err := forgetImports(ctx, t.Tx); err != nil {
			return err
		}
		return r.log.Append(ctx, t, audit.Row{
			At: at, By: c.By, App: c.App, Action: c.Action, Reason: c.Reason, Revision: id,
			Detail: fmt.Sprintf(`{"rows":%d,"written":%d,"held":%d,"doubts":%d}`, report.Rows, report.Written, report.Held, report.Doubted),
		})
	}
	if len(c.Edits) == 0 {
		if err := c.check(); err != nil {
			return err
		}
		return r.db.Change(ctx, keep)
	}
	c.Also = keep
	_, err := r.Change(ctx, c)
	return err
}

// forgetImports deletes all reports but the last ones.
func forgetImports(ctx context.Context, t sqldb.Tx) error {
	var kept []int64
	if err := t.Each(ctx, func(row sqldb.Row) error {
		var id int64
		err := row.Scan(&id)
		kept = append(kept, id)
		return err
	}, `SELECT id FROM weir_imports ORDER BY id DESC LIMIT ?`, keptImports); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `DELETE FROM weir_imports WHERE id < ?`, kept[len(kept)-1])
	return err
}

// Imports returns the reports of the last imports, the latest first.
func (r *Record) Imports(ctx context.Context) (all []Import, err error) {
	err = r.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		return t.Each(ctx, func(row sqldb.Row) error {
			var i Import
			var at int64
			var body string
			if err := row.Scan(&i.ID, &at, &i.By.ID, &i.By.Name, &i.App, &i.Reason, &i.From, &body); err != nil {
				return err
			}
			i.At = time.UnixMicro(at).UTC()
			if err := json.Unmarshal([]byte(body), &i.Imported); err != nil {
				return fmt.Errorf("import %d in the database is %.100q: %w", i.ID, body, err)
			}
			all = append(all, i)
			return nil
		}, `SELECT id, at, person, shown, app, reason, place, body FROM weir_imports ORDER BY id DESC`)
	})
	return all, err
}
