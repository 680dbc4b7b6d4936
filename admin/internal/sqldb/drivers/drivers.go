// Package drivers has the drivers of the databases that sqldb opens. It is a package of its own because SQLite in
// Go takes minutes to compile: only programs import it, and the tests of databases. With the race detector, with which
// it takes longer still, there is none.
package drivers

import (
	_ "github.com/go-sql-driver/mysql" // "mysql", for MariaDB
	_ "github.com/jackc/pgx/v5/stdlib" // "pgx", for PostgreSQL
)
