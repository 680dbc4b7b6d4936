package sqldb

// recordTables are those of package record.
var recordTables = []string{
	// The document of each app as it is now. That of "*" is not published and has no digest.
	// settings is the revision that has written the columns before it.
	`CREATE TABLE IF NOT EXISTS weir_apps (app NAME NOT NULL PRIMARY KEY,
		generation BIGINT NOT NULL, revision BIGINT NOT NULL, digest NAME NOT NULL,
		title LINE NOT NULL DEFAULT '', four_eyes SMALLINT NOT NULL DEFAULT 0, kept_by LINE NOT NULL DEFAULT '',
		kept_by_token BIGINT NOT NULL DEFAULT 0, counts BODY NOT NULL DEFAULT '', deleted SMALLINT NOT NULL DEFAULT 0,
		settings BIGINT NOT NULL DEFAULT 0)`,
	// The policies as they are now, also those that are deleted.
	`CREATE TABLE IF NOT EXISTS weir_policies (app NAME NOT NULL, name NAME NOT NULL,
		revision BIGINT NOT NULL, deleted SMALLINT NOT NULL, body BODY NOT NULL, PRIMARY KEY (app, name))`,
	// The owner of the policy that an app uses by each name; those of "*" hold for apps that have no other.
	`CREATE TABLE IF NOT EXISTS weir_users (app NAME NOT NULL, name NAME NOT NULL, owner NAME NOT NULL,
		PRIMARY KEY (app, name))`,
	// What each policy has ever been, who has made it so, and why. name is "" for a change of an app without policies.
	`CREATE TABLE IF NOT EXISTS weir_versions (app NAME NOT NULL, name NAME NOT NULL, revision BIGINT NOT NULL,
		deleted SMALLINT NOT NULL, body BODY NOT NULL, at BIGINT NOT NULL, person LINE NOT NULL, shown LINE NOT NULL,
		reason BODY NOT NULL, action NAME NOT NULL, forced SMALLINT NOT NULL, PRIMARY KEY (app, name, revision))`,
	// What this database has ever meant, about the last thousand documents of each app: a document in Redis that is
	// earlier, but not among them, comes from another database.
	`CREATE TABLE IF NOT EXISTS weir_documents (app NAME NOT NULL, generation BIGINT NOT NULL, revision BIGINT NOT NULL,
		digest NAME NOT NULL, PRIMARY KEY (app, generation, revision)) NARROW`,
	// The changes of one part of a policy that end by themselves: element is "text" or the SHA-256 of the key, text the key.
	// ended is 0 while one holds; it stays for a day. due is the time at which it is to be ended, or that is tried again.
	`CREATE TABLE IF NOT EXISTS weir_temporary (app NAME NOT NULL, name NAME NOT NULL, element NAME NOT NULL,
		text BODY NOT NULL, former BODY NOT NULL, wrote BODY NOT NULL, began BIGINT NOT NULL, ends BIGINT NOT NULL,
		ended BIGINT NOT NULL, due BIGINT NOT NULL, operator SMALLINT NOT NULL, person LINE NOT NULL, shown LINE NOT NULL,
		reason BODY NOT NULL, why BODY NOT NULL, PRIMARY KEY (app, name, element))`,
	`CREATE INDEX IF NOT EXISTS weir_temporary_by_due ON weir_temporary (ended, due)`,
	// The changes that wait for another person's approval, or did.
	`CREATE TABLE IF NOT EXISTS weir_proposals (id BIGINT NOT NULL PRIMARY KEY, app NAME NOT NULL, action NAME NOT NULL,
		body BODY NOT NULL, revision BIGINT NOT NULL, person LINE NOT NULL, shown LINE NOT NULL, reason BODY NOT NULL,
		made BIGINT NOT NULL, ends BIGINT NOT NULL, state NAME NOT NULL, decided LINE NOT NULL, decided_shown LINE NOT NULL,
		decided_at BIGINT NOT NULL, why BODY NOT NULL)`,
	`CREATE INDEX IF NOT EXISTS weir_proposals_by_app ON weir_proposals (app, state, id)`,
	// The reports of the last imports. place is that of the table which was imported.
	`CREATE TABLE IF NOT EXISTS weir_imports (id BIGINT NOT NULL PRIMARY KEY, at BIGINT NOT NULL, person LINE NOT NULL,
		shown LINE NOT NULL, app NAME NOT NULL, reason BODY NOT NULL, place LINE NOT NULL, body BODY NOT NULL)`,
}
