// Package ratetable reads the table of an older limiter, rate_limiter_info in MySQL or MariaDB, and plans the policies
// that say the same:
//
//	id           the number of a row
//	name         varchar(50), unique
//	apps         varchar(1000), the programs that may use the limit, with commas between them
//	max_permits  int, the most that may be taken at once
//	rate         int, what is added each second
//	created_by, updated_by, created_at, updated_at
//
// Each row is one bucket that all callers share. What a row leaves open is listed, and never guessed.
package ratetable
