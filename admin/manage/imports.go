package manage

import (
	"context"
	"time"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
)

// Imports answers PathImports, the latest first: about the last ten.
type Imports struct {
	Imports []Import `json:"imports"`
}

// Import is the report of policies that a command has imported from the table of an older limiter.
type Import struct {
	ID int64     `json:"id"` // the revision of the change
	At time.Time `json:"at"`
	// Person is the id of whoever has started the command, as the audit has it.
	Person string `json:"person"`
	Name   string `json:"name,omitempty"`
	App    string `json:"app"` // that the policies belong to
	Reason string `json:"reason,omitempty"`
	// From is the place of the table, without a user or password.
	From string `json:"from"`
	// Rows is the number of those in the table, Written that of the policies that were written, Held that of those that the
	// record had already, and Doubted that of the doubts.
	Rows    int `json:"rows"`
	Written int `json:"written"`
	Held    int `json:"held"`
	Doubted int `json:"doubted"`
	// Taken are the first 200 policies that were written, and Doubts the first 200 doubts.
	Taken  []ImportedRow `json:"taken"`
	Doubts []ImportedRow `json:"doubts"`
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

// Imports returns the reports of the last imports. They name apps of all kinds, and are for those who read the audit of
// all apps.
func (m *Manager) Imports(ctx context.Context, who *rights.Person) (*Imports, error) {
	if err := m.may(who, rights.ActionAuditAll); err != nil {
		return nil, err
	}
	all, err := m.o.Record.Imports(ctx)
	if err != nil {
		return nil, err
	}
	out := &Imports{Imports: []Import{}}
	for _, i := range all {
		out.Imports = append(out.Imports, Import{
			ID: i.ID, At: i.At, Person: i.By.ID, Name: i.By.Name, App: i.App, Reason: i.Reason, From: i.From,
			Rows: i.Rows, Written: i.Written, Held: i.Held, Doubted: i.Doubted,
			Taken: importedRows(i.Taken), Doubts: importedRows(i.Doubts),
		})
	}
	return out, nil
}

func importedRows(all []record.ImportedRow) []ImportedRow {
	out := make([]ImportedRow, len(all))
	for n, row := range all {
		out[n] = ImportedRow(row)
	}
	return out
}
