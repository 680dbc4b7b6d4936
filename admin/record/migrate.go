package record

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// migrations are the statements that make the tables, in the order in which they were added: one statement each, which
// may be done again, because MariaDB cannot undo one half of a migration. NAME is the type of the name of an app or
// policy, which compares byte by byte, and BODY that of a long text. Times are microseconds since 1970.
var migrations = []string{
	// The lock of all changes, and their number.
	`CREATE TABLE IF NOT EXISTS weir_head (id INTEGER NOT NULL PRIMARY KEY, revision BIGINT NOT NULL)`,
	`INSERT INTO weir_head (id, revision)
		SELECT 1, 0 FROM (SELECT COUNT(*) AS found FROM weir_head) AS heads WHERE heads.found = 0`,
	// The document of each app as it is now. That of "*" is not published and has no digest.
	`CREATE TABLE IF NOT EXISTS weir_apps (app NAME NOT NULL PRIMARY KEY,
		generation BIGINT NOT NULL, revision BIGINT NOT NULL, digest NAME NOT NULL)`,
	// The policies as they are now, also those that are deleted.
	`CREATE TABLE IF NOT EXISTS weir_policies (app NAME NOT NULL, name NAME NOT NULL,
		revision BIGINT NOT NULL, deleted SMALLINT NOT NULL, body BODY NOT NULL, PRIMARY KEY (app, name))`,
	// The owner of the policy that an app uses by each name; those of "*" hold for apps that have no other.
	`CREATE TABLE IF NOT EXISTS weir_users (app NAME NOT NULL, name NAME NOT NULL, owner NAME NOT NULL,
		PRIMARY KEY (app, name))`,
	// What each policy has ever been.
	`CREATE TABLE IF NOT EXISTS weir_versions (app NAME NOT NULL, name NAME NOT NULL, revision BIGINT NOT NULL,
		deleted SMALLINT NOT NULL, body BODY NOT NULL, PRIMARY KEY (app, name, revision))`,
	// The authors and reasons. was is the revision of the version before, 0 if there was none. name is "" for a change of an app.
	`CREATE TABLE IF NOT EXISTS weir_audit (revision BIGINT NOT NULL, app NAME NOT NULL, name NAME NOT NULL,
		at BIGINT NOT NULL, who BODY NOT NULL, why BODY NOT NULL, action NAME NOT NULL, forced SMALLINT NOT NULL,
		was BIGINT NOT NULL, PRIMARY KEY (revision, app, name))`,
	// What this database has ever meant, about the last thousand documents of each app: a document in Redis that is
	// earlier, but not among them, comes from another database.
	`CREATE TABLE IF NOT EXISTS weir_documents (app NAME NOT NULL, generation BIGINT NOT NULL, revision BIGINT NOT NULL,
		digest NAME NOT NULL, PRIMARY KEY (app, generation, revision))`,
}

// versions is the table of migrations that are done.
const versions = "weir_migrations"

// migrate makes the tables. It may be killed anywhere, and run in several processes: the next one goes on.
func (r *Record) migrate(ctx context.Context, db *sql.DB) error {
	if r.d.locked == "" { // SQLite locks the file for each statement, and each may be done again
		return r.untilFree(ctx, func() error { return r.up(ctx, db) })
	}
	lock, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer lock.Close() // the database ends the lock with the connection
	if _, err := lock.ExecContext(ctx, r.d.locked); err != nil {
		return err
	}
	defer lock.ExecContext(context.WithoutCancel(ctx), r.d.unlocked) //nolint:errcheck // as above
	return r.up(ctx, db)
}

// untilFree repeats do for as long as others may be at it.
func (r *Record) untilFree(ctx context.Context, do func() error) error {
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

func (r *Record) up(ctx context.Context, db *sql.DB) error {
	store, err := database.NewStore(r.d.goose, versions)
	if err != nil {
		return err
	}
	if err := begun(ctx, db, store); err != nil {
		return err
	}
	steps := make([]*goose.Migration, len(migrations))
	for i, statement := range migrations {
		statement = r.d.types.Replace(statement)
		steps[i] = goose.NewGoMigration(int64(i+1), &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}}, nil)
	}
	provider, err := goose.NewProvider("", db, nil,
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
