package sqldb

// recordTables are those of package record.
var recordTables = []string{
	// The document of each app as it is now. That of "*" is not published and has no digest.
	`CREATE TABLE IF NOT EXISTS weir_apps (app NAME NOT NULL PRIMARY KEY,
		generation BIGINT NOT NULL, revision BIGINT NOT NULL, digest NAME NOT NULL)`,
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
	`CREATE INDEX IF NOT EXISTS weir_versions_by_revision ON weir_versions (revision)`,
	// What this database has ever meant, about the last thousand documents of each app: a document in Redis that is
	// earlier, but not among them, comes from another database.
	`CREATE TABLE IF NOT EXISTS weir_documents (app NAME NOT NULL, generation BIGINT NOT NULL, revision BIGINT NOT NULL,
		digest NAME NOT NULL, PRIMARY KEY (app, generation, revision))`,
}
