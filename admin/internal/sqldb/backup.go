package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
)

// Backup writes a copy of the database, of one moment, to a new file that only its owner may read. Others may write
// meanwhile. Only SQLite is copied like this: the other databases have programs for it, which the error names.
func (db *DB) Backup(ctx context.Context, file string) error {
	if db.d.backup != "" {
		return fmt.Errorf("sqldb: %s has a program for it; use %s", db.d.name, db.d.backup)
	}
	to, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // SQLite fills a file that is empty
	if err != nil {
		return fmt.Errorf("sqldb: %w; give the name of a new file", err)
	}
	err = db.vacuumInto(ctx, file)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(fmt.Errorf("sqldb: the copy in %s: %w", file, err), os.Remove(file))
	}
	return nil
}

// vacuumInto copies the database on a connection that nobody else waits for, because those that read may not write, not
// even another file.
func (db *DB) vacuumInto(ctx context.Context, file string) error {
	alone, err := sql.Open(db.d.driver, db.name)
	if err != nil {
		return err
	}
	_, err = alone.ExecContext(ctx, "VACUUM INTO ?", file)
	return errors.Join(err, alone.Close())
}
