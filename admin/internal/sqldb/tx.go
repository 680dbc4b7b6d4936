package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Tx is a transaction. Parameters are "?" whatever the database is. Errors of the database are an *[UnavailableError].
type Tx struct {
	tx *sql.Tx
	d  *dialect
}

// Exec runs a statement and returns the number of rows that it has found.
func (t Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, t.d.text(query), args...)
	if err != nil {
		return 0, unavailable(err)
	}
	n, err := result.RowsAffected()
	return n, unavailable(err)
}

// Row returns the first row of a query. If there is none, its Scan returns [sql.ErrNoRows].
func (t Tx) Row(ctx context.Context, query string, args ...any) Row {
	return Row{t.tx.QueryRowContext(ctx, t.d.text(query), args...)}
}

// Each calls scan for each row of a query, until scan returns an error.
func (t Tx) Each(ctx context.Context, scan func(Row) error, query string, args ...any) error {
	rows, err := t.tx.QueryContext(ctx, t.d.text(query), args...)
	if err != nil {
		return unavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(Row{rows}); err != nil {
			return err
		}
	}
	return unavailable(rows.Err())
}

func (t Tx) commit() error {
	if err := t.tx.Commit(); err != nil {
		return fmt.Errorf("%w (%v)", ErrUnknown, err) //nolint:errorlint // the database's error is for people
	}
	return nil
}

// Row is one row of a query.
type Row struct {
	row interface{ Scan(into ...any) error }
}

// Scan writes the columns to the variables that the pointers name.
func (r Row) Scan(into ...any) error {
	err := r.row.Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return unavailable(err)
}

// Change is a transaction that holds the lock of all changes. Nothing in it may begin another transaction that writes:
// that one would wait for this one.
type Change struct {
	Tx

	// End is the last link of the audit's chain. Package audit sets it.
	End Link

	revision int64
	used     bool // whether there is a new revision
	began    Link // the End at the beginning
	after    []func(error)
}

// Link is a row of the audit's chain: its number, from 1 on, and its hash in hexadecimal digits. The zero Link is that of
// a chain without rows.
type Link struct {
	Seq  int64
	Hash string
}

// Revision returns the number of this change, which is one more than that of the last change that asked for its number.
func (c *Change) Revision() int64 {
	if !c.used {
		c.used = true
		c.revision++
	}
	return c.revision
}

// After lets do be called after the change: with nil once it is written, or with [ErrUnknown]. It is not called for a
// change that is not written.
func (c *Change) After(do func(error)) { c.after = append(c.after, do) }

// lock waits for the other changes to end.
func (c *Change) lock(ctx context.Context) error {
	err := c.Row(ctx, `SELECT revision, links, link FROM weir_head WHERE id = 1`+c.d.lock).
		Scan(&c.revision, &c.End.Seq, &c.End.Hash)
	c.began = c.End
	return err
}

// unlock writes what the next change goes on from. The lock ends with the transaction.
func (c *Change) unlock(ctx context.Context) error {
	if !c.used && c.End == c.began {
		return nil
	}
	_, err := c.Exec(ctx, `UPDATE weir_head SET revision = ?, links = ?, link = ? WHERE id = 1`,
		c.revision, c.End.Seq, c.End.Hash)
	return err
}
