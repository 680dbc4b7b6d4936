package sqldb

// auditTables are those of package audit.
var auditTables = []string{
	// The rows of the chain. mark is the HMAC of a key, hash the link to the next row.
	`CREATE TABLE IF NOT EXISTS weir_audit (seq SEQUENCE NOT NULL PRIMARY KEY, at BIGINT NOT NULL,
		person LINE NOT NULL, name LINE NOT NULL, app NAME NOT NULL, policy NAME NOT NULL, action NAME NOT NULL,
		reason BODY NOT NULL, revision BIGINT NOT NULL, was BIGINT NOT NULL, forced SMALLINT NOT NULL,
		emergency SMALLINT NOT NULL, mark NAME NOT NULL, detail BODY NOT NULL, outcome NAME NOT NULL, hash NAME NOT NULL)`,
	`CREATE INDEX IF NOT EXISTS weir_audit_by_app ON weir_audit (app, seq)`,
	`CREATE INDEX IF NOT EXISTS weir_audit_by_person ON weir_audit (person, seq)`,
	// The keys of rows, which are persons, with the secrets of their marks: without the secret, a mark cannot be found
	// again by trying keys.
	`CREATE TABLE IF NOT EXISTS weir_audit_keys (seq SEQUENCE NOT NULL PRIMARY KEY, at BIGINT NOT NULL, secret NAME NOT NULL,
		text BODY NOT NULL)`,
	// The emergencies, and who has looked at each; at is 0 until then.
	`CREATE TABLE IF NOT EXISTS weir_emergencies (seq SEQUENCE NOT NULL PRIMARY KEY, at BIGINT NOT NULL, person LINE NOT NULL,
		name LINE NOT NULL)`,
}
