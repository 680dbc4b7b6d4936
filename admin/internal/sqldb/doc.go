// Package sqldb opens the database of the admin, which is SQLite, PostgreSQL or MariaDB, makes its tables, and has the
// transactions in which everything else reads and writes them. A program that opens one also imports the drivers:
//
//	import _ "github.com/weir-go/weir/admin/internal/sqldb/drivers"
package sqldb
