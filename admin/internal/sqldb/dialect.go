package sqldb

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3/database"
)

// dialect has the differences between the databases.
type dialect struct {
	name      string
	driver    string // as database/sql knows it
	goose     database.Dialect
	numbered  bool   // parameters are $1, not ?
	lock      string // what a SELECT ends with that locks its row
	begin     string // statements at the beginning of a transaction that writes
	writes    *sql.TxOptions
	reads     *sql.TxOptions
	types     *strings.Replacer // in the statements of migrations
	oneWriter bool              // one connection writes, and others read
	locked    string            // a query that waits for the lock of migrations, and holds it until its connection ends
	unlocked  string
	backup    string // the program that makes a copy, "" for SQLite, which does it itself
}

var (
	sqlite = dialect{
		name: "SQLite", driver: "sqlite", goose: database.DialectSQLite3,
		writes: &sql.TxOptions{}, reads: &sql.TxOptions{},
		types:     strings.NewReplacer("NAME", "TEXT", "LINE", "TEXT", "BODY", "TEXT", "SEQUENCE", "INTEGER", "NARROW", "WITHOUT ROWID"),
		oneWriter: true, // BEGIN IMMEDIATE, by _txlock
	}
	postgres = dialect{
		name: "PostgreSQL", driver: "pgx", goose: database.DialectPostgres,
		numbered: true,
		lock:     " FOR UPDATE",
		// An admin that stands still holds up nobody else for longer.
		begin:  "SET LOCAL lock_timeout = '5s'; SET LOCAL idle_in_transaction_session_timeout = '10s'",
		writes: &sql.TxOptions{Isolation: sql.LevelReadCommitted},
		reads:  &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		types: strings.NewReplacer("NAME", `VARCHAR(64) COLLATE "C"`, "LINE", `VARCHAR(255) COLLATE "C"`, "BODY", "TEXT",
			"SEQUENCE", "BIGINT", " NARROW", ""),
		locked: "SELECT pg_advisory_lock(7837468)", unlocked: "SELECT pg_advisory_unlock(7837468)",
		backup: "pg_dump",
	}
	mariadb = dialect{
		name: "MariaDB", driver: "mysql", goose: database.DialectMySQL,
		lock:   " FOR UPDATE",
		writes: &sql.TxOptions{Isolation: sql.LevelReadCommitted},
		reads:  &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		types: strings.NewReplacer("NAME", "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin",
			"LINE", "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
			"BODY", "MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "SEQUENCE", "BIGINT", " NARROW", ""),
		locked: "SELECT GET_LOCK('weir', 30)", unlocked: "SELECT RELEASE_LOCK('weir')",
		backup: "mariadb-dump --single-transaction",
	}
)

// places lists the forms of a location.
const places = `a file such as "weir.db", "postgres://user@host/database" or "mariadb://user@host/database"`

// locate returns how to open the database at a location: to write, and to read.
func locate(location string) (d dialect, write, read string, err error) {
	scheme, rest, found := strings.Cut(location, "://")
	switch {
	case location == "":
		return d, "", "", fmt.Errorf("sqldb: no database; give %s", places)
	case found && (scheme == "postgres" || scheme == "postgresql"):
		return postgres, location, location, nil
	case found && scheme == "mariadb":
		name, err := mariadbName(location)
		return mariadb, name, name, err
	case found && scheme != "file":
		return d, "", "", fmt.Errorf("sqldb: found the database %q; give %s", scheme+"://", places)
	case found:
		location = rest
	}
	if strings.Contains(location, ":memory:") {
		return d, "", "", errors.New("sqldb: a database in memory is lost with the process; give a file")
	}
	write, read = sqliteName(location)
	return sqlite, write, read, nil
}

// Missing reports whether a location is that of a file that does not exist, which [Open] would make.
func Missing(location string) bool {
	d, _, _, err := locate(location)
	if err != nil || !d.oneWriter {
		return false
	}
	_, err = os.Stat(strings.TrimPrefix(location, "file://"))
	return errors.Is(err, fs.ErrNotExist)
}

// sqliteName returns the names of a file for a connection that writes and for those that read.
func sqliteName(file string) (write, read string) {
	pragmas := []string{"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}
	name := "file:" + (&url.URL{Path: file}).EscapedPath()
	write = name + "?" + url.Values{"_pragma": pragmas, "_txlock": {"immediate"}}.Encode()
	read = name + "?" + url.Values{"_pragma": {"busy_timeout(5000)", "query_only(1)"}, "_txlock": {"deferred"}}.Encode()
	return write, read
}

// mariadbName returns a location as the driver wants it.
func mariadbName(location string) (string, error) {
	u, err := url.Parse(location)
	if err != nil {
		return "", errors.New("sqldb: the database is no URL; give one such as \"mariadb://user@host:3306/database\"")
	}
	host := u.Host
	if u.Port() == "" {
		host += ":3306"
	}
	address := "tcp(" + host + ")"
	query := u.Query()
	if socket := query.Get("socket"); socket != "" {
		address = "unix(" + socket + ")"
		query.Del("socket")
	}
	for name, value := range map[string]string{
		"charset": "utf8mb4",
		// The number of rows that an UPDATE has found, whether or not they said the same already.
		"clientFoundRows":          "true",
		"rejectReadOnly":           "true", // after a failover
		"parseTime":                "true", // goose has a time in its table
		"timeout":                  "5s",
		"readTimeout":              "30s",
		"writeTimeout":             "30s",
		"innodb_lock_wait_timeout": "5",
		"idle_transaction_timeout": "10", // an admin that stands still holds up nobody else for longer
		"sql_mode":                 "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
	} {
		if !query.Has(name) {
			query.Set(name, value)
		}
	}
	user := u.User.Username()
	if password, ok := u.User.Password(); ok {
		user += ":" + password
	}
	return user + "@" + address + "/" + url.PathEscape(strings.TrimPrefix(u.Path, "/")) + "?" + query.Encode(), nil
}

// text returns a query with the parameters that the database knows.
func (d *dialect) text(query string) string {
	if !d.numbered {
		return query
	}
	var b strings.Builder
	n := 0
	for _, r := range query {
		if r == '?' {
			n++
			b.WriteString("$" + strconv.Itoa(n))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
