package sqldb

import "slices"

// migrations are the statements that make the tables: one statement each, which may be done again, because MariaDB
// cannot undo one half of a migration. The tables of each package are in a separate file. Until the first release a
// statement may be changed or added anywhere; after it, new ones go to the end of this list, in a list of their release.
//
// NAME is the type of the name of an app or policy, and of other words of at most 64 characters of ASCII, which compare
// byte by byte, LINE that of a text of at most 255 characters, and BODY that of a long text. SEQUENCE is the type of a
// number that is a primary key alone, and NARROW marks a table of short rows: in SQLite, such tables need no second tree
// for their key. Times are microseconds since 1970.
var migrations = slices.Concat(headTables, recordTables, auditTables, peopleTables)

var headTables = []string{
	// The lock of all changes, their number, and the last link of the audit's chain.
	`CREATE TABLE IF NOT EXISTS weir_head (id INTEGER NOT NULL PRIMARY KEY, revision BIGINT NOT NULL,
		links BIGINT NOT NULL, link NAME NOT NULL)`,
	`INSERT INTO weir_head (id, revision, links, link)
		SELECT 1, 0, 0, '' FROM (SELECT COUNT(*) AS found FROM weir_head) AS heads WHERE heads.found = 0`,
}
