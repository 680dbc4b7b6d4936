package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// versions is the table of migrations that are done.
const versions = "weir_migrations"

// migrate makes the tables. It may be killed anywhere, and run in several processes: the next one goes on.
func (db *DB) migrate(ctx context.Context) error {
	if db.d.locked == "" { // SQLite locks the file for each statement, and each may be done again
		return untilFree(ctx, func() error { return db.up(ctx) })
	}
	lock, err := db.write.Conn(ctx)
	if err != nil {
		return err
	}
	defer lock.Close() // the database ends the lock with the connection
	if _, err := lock.ExecContext(ctx, db.d.locked); err != nil {
		return err
	}
	defer lock.ExecContext(context.WithoutCancel(ctx), db.d.unlocked) //nolint:errcheck // as above
	return db.up(ctx)
}

// untilFree repeats do for as long as others may be at it.
func untilFree(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := do()
		if err == nil || lasts(err) {
			return err
		}
		again := time.NewTimer(100 * time.Millisecond)
		select {
		case <-ctx.Done():
			again.Stop()
			return err
		case <-again.C:
		}
	}
}

// lasts reports whether an error of SQLite is one that no waiting ends: of rights, a disk or a file that is not a
// database.
func lasts(err error) bool {
	var of interface{ Code() int }
	if !errors.As(err, &of) {
		return false
	}
	const perm, readOnly, corrupt, full, cannotOpen, auth, notADatabase = 3, 8, 11, 13, 14, 23, 26
	switch of.Code() & 0xff { // the rest says more about it
	case perm, readOnly, corrupt, full, cannotOpen, auth, notADatabase:
		return true
	}
	return false
}

func (db *DB) up(ctx context.Context) error {
	store, err := database.NewStore(db.d.goose, versions)
	if err != nil {
		return err
	}
	if err := begun(ctx, db.write, store); err != nil {
		return err
	}
	steps := make([]*goose.Migration, len(migrations))
	for i, statement := range migrations {
		statement = db.d.types.Replace(statement)
		steps[i] = goose.NewGoMigration(int64(i+1), &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}}, nil)
	}
	provider, err := goose.NewProvider("", db.write, nil,
		goose.WithStore(store), goose.WithGoMigrations(steps...), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// begun makes goose's table and its first row, if either is missing: goose makes both at once, or neither, and gives up
// on a table without rows, which is left where a table cannot be undone and the process was killed in between.
func begun(ctx context.Context, db *sql.DB, store database.Store) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, missing := store.GetMigration(ctx, conn, 0)
	if missing == nil {
		return nil
	}
	if !errors.Is(missing, database.ErrVersionNotFound) { // mostly because there is no table
		if err := store.CreateVersionTable(ctx, conn); err != nil {
			return errors.Join(missing, err)
		}
	}
	return store.Insert(ctx, conn, database.InsertRequest{Version: 0})
}
