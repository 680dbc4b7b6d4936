// Package record keeps the policies of a fleet, and their history, in a database: SQLite, PostgreSQL or MariaDB. A
// program that opens one also imports the drivers:
//
//	import _ "github.com/weir-go/weir/admin/record/drivers"
package record
