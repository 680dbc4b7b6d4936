package ratetable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Table has the rows of a database, and the lengths of its columns.
type Table struct {
	Rows []Row
	// Name and Apps are the numbers of characters that the columns can hold; 0 stands for any.
	Name, Apps int64
}

// Row is a row of the table. A text that is NULL is "", and a number that is NULL is not Valid.
type Row struct {
	ID              int64
	Name, Apps      string
	MaxPermits      sql.Null[int64]
	Rate            sql.Null[int64]
	Creator         string
	Updater         string
	Created, Edited string // as the database writes them
}

// MaxRows bounds the rows of a table that is read.
const MaxRows = 10_000

// Open opens the database of the older limiter, at a location such as "mysql://user@host:3306/database".
func Open(location string) (*sql.DB, error) {
	const such = `give one such as "mysql://user@host:3306/database"`
	u, err := url.Parse(location)
	if err != nil { // the error would have the password
		return nil, errors.New("ratetable: the location of the table is no URL; " + such)
	}
	if u.Scheme != "mysql" && u.Scheme != "mariadb" {
		return nil, fmt.Errorf("ratetable: the table is in %q; %s", u.Scheme+"://", such)
	}
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", u.Host
	if u.Port() == "" {
		c.Addr += ":3306"
	}
	if socket := u.Query().Get("socket"); socket != "" {
		c.Net, c.Addr = "unix", socket
	}
	c.TLSConfig = u.Query().Get("tls")
	c.DBName = strings.TrimPrefix(u.Path, "/")
	c.Timeout, c.ReadTimeout, c.WriteTimeout = 5*time.Second, 30*time.Second, 30*time.Second
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("ratetable: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// Place returns a location without what may be secret: its user, its password and its parameters.
func Place(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Read reads the table, in one state. Nothing is written.
func Read(ctx context.Context, from *sql.DB) (t Table, err error) {
	db, err := from.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return t, fmt.Errorf("ratetable: %w", err)
	}
	defer db.Rollback() //nolint:errcheck // nothing was written
	lengths := map[string]int64{}
	columns, err := db.QueryContext(ctx, `SELECT column_name, COALESCE(character_maximum_length, 0)
		FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'rate_limiter_info'`)
	if err != nil {
		return t, fmt.Errorf("ratetable: %w", err)
	}
	defer columns.Close()
	for columns.Next() {
		var name string
		var length int64
		if err := columns.Scan(&name, &length); err != nil {
			return t, fmt.Errorf("ratetable: %w", err)
		}
		lengths[name] = length
	}
	if err := columns.Err(); err != nil {
		return t, fmt.Errorf("ratetable: %w", err)
	}
	if len(lengths) == 0 {
		return t, errors.New("ratetable: the database has no table rate_limiter_info; give the one of the older limiter")
	}
	t.Name, t.Apps = lengths["name"], lengths["apps"]

	rows, err := db.QueryContext(ctx, fmt.Sprintf(`SELECT id, COALESCE(name, ''), COALESCE(apps, ''), max_permits, rate,
		COALESCE(created_by, ''), COALESCE(updated_by, ''),
		COALESCE(CAST(created_at AS CHAR), ''), COALESCE(CAST(updated_at AS CHAR), '')
		FROM rate_limiter_info ORDER BY id LIMIT %d`, MaxRows+1))
	if err != nil {
		return t, fmt.Errorf("ratetable: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r Row
		if err := rows.Scan(&r.ID, &r.Name, &r.Apps, &r.MaxPermits, &r.Rate, &r.Creator, &r.Updater, &r.Created, &r.Edited); err != nil {
			return t, fmt.Errorf("ratetable: %w", err)
		}
		t.Rows = append(t.Rows, r)
	}
	if err := rows.Err(); err != nil {
		return t, fmt.Errorf("ratetable: %w", err)
	}
	if len(t.Rows) > MaxRows {
		return t, fmt.Errorf("ratetable: the table has more than %d rows; import it in parts, from copies of it", MaxRows)
	}
	return t, nil
}
