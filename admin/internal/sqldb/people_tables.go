package sqldb

// peopleTables are those of package people. A hash is the SHA-256 sum of a secret that is kept nowhere, in hexadecimal
// digits, and a time of 0 is none.
var peopleTables = []string{
	// The number of changes of the tables below that decide who somebody is and which rights they have.
	`CREATE TABLE IF NOT EXISTS weir_known (id INTEGER NOT NULL PRIMARY KEY, changes BIGINT NOT NULL)`,
	`INSERT INTO weir_known (id, changes)
		SELECT 1, 0 FROM (SELECT COUNT(*) AS found FROM weir_known) AS known WHERE known.found = 0`,
	// Everybody who has logged in, with the time of the last login.
	`CREATE TABLE IF NOT EXISTS weir_people (id NAME NOT NULL PRIMARY KEY, issuer LINE NOT NULL, subject LINE NOT NULL,
		name LINE NOT NULL, seen BIGINT NOT NULL, barred SMALLINT NOT NULL)`,
	// The groups of each person at the last login.
	`CREATE TABLE IF NOT EXISTS weir_members (person NAME NOT NULL, name LINE NOT NULL, PRIMARY KEY (person, name))`,
	// The roles of people, by their id, and of groups, by their name. kind is "person" or "group".
	`CREATE TABLE IF NOT EXISTS weir_grants (app NAME NOT NULL, kind NAME NOT NULL, subject LINE NOT NULL,
		role NAME NOT NULL, ends BIGINT NOT NULL, PRIMARY KEY (app, kind, subject))`,
	// The revision that wrote the grants of an app last.
	`CREATE TABLE IF NOT EXISTS weir_granted (app NAME NOT NULL PRIMARY KEY, revision BIGINT NOT NULL)`,
	// Tokens of programs. parent is the token that made it, 0 for a session. apps is a JSON array.
	`CREATE TABLE IF NOT EXISTS weir_tokens (id BIGINT NOT NULL PRIMARY KEY, hash NAME NOT NULL UNIQUE, name LINE NOT NULL,
		maker NAME NOT NULL, parent BIGINT NOT NULL, apps BODY NOT NULL, role NAME NOT NULL,
		made BIGINT NOT NULL, ends BIGINT NOT NULL, used BIGINT NOT NULL)`,
	// Links that have not been used.
	`CREATE TABLE IF NOT EXISTS weir_links (hash NAME NOT NULL PRIMARY KEY, person NAME NOT NULL, ends BIGINT NOT NULL)`,
	// Sessions of browsers. seen is moved now and then.
	`CREATE TABLE IF NOT EXISTS weir_sessions (hash NAME NOT NULL PRIMARY KEY, person NAME NOT NULL,
		began BIGINT NOT NULL, seen BIGINT NOT NULL)`,
	// Logins by the provider that have led to a person: none does so twice.
	`CREATE TABLE IF NOT EXISTS weir_logins (hash NAME NOT NULL PRIMARY KEY, ends BIGINT NOT NULL)`,
	// The key that seals the cookie of a login that is under way.
	`CREATE TABLE IF NOT EXISTS weir_seal (id INTEGER NOT NULL PRIMARY KEY, secret NAME NOT NULL)`,
}
