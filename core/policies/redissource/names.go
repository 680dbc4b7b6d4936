package redissource

// Key returns the name of the hash that has the document of an app.
func Key(app string) string { return "weir-policies:" + app }

// Channel returns the name of the channel on which a change of the document of an app is announced. It is the text of
// [Key], so that a ring of servers has both on one.
func Channel(app string) string { return Key(app) }

// ProcessKey returns the name of the key under which a process of an app says what it obeys.
func ProcessKey(app, id string) string { return "weir-services:" + app + ":" + id }

// UsageKey returns the name of the key under which a process of an app says what it has counted.
func UsageKey(app, id string) string { return ProcessKey(app, id) + ":usage" }

// ProcessIndex returns the name of the sorted set of the processes of an app: ids by the Unix time in seconds at which
// each was last heard of.
func ProcessIndex(app string) string { return "weir-services:" + app + ":index" }

// The fields of the hash under [Key].
const (
	FieldGeneration = "generation" // decimal
	FieldRevision   = "revision"   // decimal
	FieldDigest     = "digest"     // SHA-256 of the document, in hexadecimal digits
	FieldDocument   = "document"   // as Document.Encode writes it
)
