package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/record"
)

// audited compares the record with what was acknowledged, and verifies the chain of the audit, with the lines that the
// servers have written, and that each version of a policy has a row.
func (k *killing) audited() error {
	db, err := sqldb.Open(k.ctx, k.location)
	if err != nil {
		return err
	}
	defer db.Close()
	var links []sqldb.Link
	for _, s := range k.servers {
		of, err := audit.Links(strings.NewReader(s.rows.String()))
		if err != nil {
			return err
		}
		links = append(links, of...)
	}
	log := audit.New(db, audit.Options{})
	defer log.Close()
	if err := k.ledger.check(k.ctx, record.New(db, log)); err != nil {
		return err
	}
	report, err := log.Verify(k.ctx, links...)
	if err != nil {
		return err
	}
	if report.Fault != nil {
		return fmt.Errorf("%w: row %d of the audit %s", errBroken, report.Fault.Seq, report.Fault.Text)
	}
	k.rows = report.Rows
	return db.Read(k.ctx, func(ctx context.Context, t sqldb.Tx) error {
		var versions, rows, both int64
		for query, into := range map[string]*int64{
			`SELECT COUNT(*) FROM weir_versions WHERE name <> ''`:                 &versions,
			`SELECT COUNT(*) FROM weir_audit WHERE revision > 0 AND policy <> ''`: &rows,
			`SELECT COUNT(*) FROM weir_versions v JOIN weir_audit a
				ON a.revision = v.revision AND a.app = v.app AND a.policy = v.name WHERE v.name <> ''`: &both,
		} {
			if err := t.Row(ctx, query).Scan(into); err != nil {
				return err
			}
		}
		if versions != rows || versions != both {
			return fmt.Errorf("%w: %d versions of policies, %d rows of the audit, and %d that belong to each other",
				errBroken, versions, rows, both)
		}
		return nil
	})
}
