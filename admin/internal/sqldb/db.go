package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// MaxTime bounds each transaction, whatever the caller's context says.
const MaxTime = 20 * time.Second

// DB is an open database. It is safe for concurrent use, and several processes may open one database.
type DB struct {
	d        dialect
	name     string // as the driver takes it, to write
	write    *sql.DB
	read     *sql.DB
	changing chan struct{} // held by a Change
}

// changesAtOnce is the number of changes of one process that the database knows of: the one that is made, and one that
// follows at once. Others wait in the process, where no lock of the database times out and no connection is held.
const changesAtOnce = 2

// Open opens the database at a location, a file such as "weir.db", "postgres://user@host/database" or
// "mariadb://user@host/database", and makes its tables where they are missing.
func Open(ctx context.Context, location string) (*DB, error) {
	d, write, read, err := locate(location)
	if err != nil {
		return nil, err
	}
	db := &DB{d: d, name: write, changing: make(chan struct{}, changesAtOnce)}
	if db.write, err = sql.Open(d.driver, write); err != nil {
		return nil, fmt.Errorf("sqldb: %w", err)
	}
	db.read = db.write
	if d.oneWriter {
		if db.read, err = sql.Open(d.driver, read); err != nil {
			return nil, fmt.Errorf("sqldb: %w", err)
		}
		db.write.SetMaxOpenConns(1)
		db.read.SetMaxOpenConns(4)
		db.read.SetMaxIdleConns(4)
	} else {
		db.write.SetMaxOpenConns(16)
		db.write.SetMaxIdleConns(4)
		db.write.SetConnMaxLifetime(30 * time.Minute)
	}
	if err := db.migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sqldb: the tables of %s: %w", d.name, err), db.Close())
	}
	return db, nil
}

// Close ends the connections.
func (db *DB) Close() error {
	err := db.write.Close()
	if db.read != db.write {
		err = errors.Join(err, db.read.Close())
	}
	return err
}

// Read calls do with a transaction that sees one state of the database. It returns the error of do, or an
// *[UnavailableError].
func (db *DB) Read(ctx context.Context, do func(context.Context, Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, MaxTime)
	defer cancel()
	began, err := db.read.BeginTx(ctx, db.d.reads)
	if err != nil {
		return unavailable(err)
	}
	defer began.Rollback() //nolint:errcheck // nothing was written
	return do(ctx, Tx{began, &db.d})
}

// Write calls do with a transaction and commits it, unless do returns an error. It is for tables
// outside of the record, which have no row in the audit, such as sessions: it does not wait for changes, except in
// SQLite, where one transaction at a time writes. It returns the error of do, an *[UnavailableError] or [ErrUnknown].
func (db *DB) Write(ctx context.Context, do func(context.Context, Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, MaxTime)
	defer cancel()
	t, err := db.begin(ctx)
	if err != nil {
		return err
	}
	defer t.tx.Rollback() //nolint:errcheck // it is over, or nothing shall be written
	if err := do(ctx, t); err != nil {
		return err
	}
	return t.commit()
}

// Change calls do with a transaction that holds the lock of all changes, of all processes, and commits it, unless do
// returns an error. It returns the error of do, an *[UnavailableError] or [ErrUnknown].
func (db *DB) Change(ctx context.Context, do func(context.Context, *Change) error) error {
	ctx, cancel := context.WithTimeout(ctx, MaxTime)
	defer cancel()
	select {
	case db.changing <- struct{}{}:
		defer func() { <-db.changing }()
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	t, err := db.begin(ctx)
	if err != nil {
		return err
	}
	defer t.tx.Rollback() //nolint:errcheck // it is over, or nothing shall be written
	c := &Change{Tx: t}
	if err := c.lock(ctx); err != nil {
		return err
	}
	if err := do(ctx, c); err != nil {
		return err
	}
	if err := c.unlock(ctx); err != nil {
		return err
	}
	err = t.commit()
	for _, after := range c.after {
		after(err)
	}
	return err
}

// begin begins a transaction that writes.
func (db *DB) begin(ctx context.Context) (Tx, error) {
	began, err := db.write.BeginTx(ctx, db.d.writes)
	if err != nil {
		return Tx{}, unavailable(err)
	}
	if db.d.begin != "" {
		if _, err := began.ExecContext(ctx, db.d.begin); err != nil {
			return Tx{}, errors.Join(unavailable(err), began.Rollback())
		}
	}
	return Tx{began, &db.d}, nil
}

// UnavailableError reports that the database did not do what it was asked for. Nothing was written.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the database does not answer as it should: %v; try again", e.Err)
}

// Unwrap returns the error of the database.
func (e *UnavailableError) Unwrap() error { return e.Err }

// unavailable returns an error of the database as an *UnavailableError.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &UnavailableError{err}
}

// ErrUnknown reports that the database did not answer whether a transaction was written.
var ErrUnknown = errors.New("it is not known whether the change was written; read what holds now")
