// Package audit keeps who has done what, and why, in rows that cannot be changed unseen.
//
// Each row is a link of a chain: its hash is the SHA-256 of the hash of the row before, which is 32 zero bytes for the
// first one, and of its fields. These are, in this order: the text "weir-audit-1", seq, at (microseconds since 1970),
// person, name, app, policy, action, reason, revision, was, forced, emergency (0 or 1), mark, detail and outcome. An
// integer is 8 bytes, the highest first, and a text its length as such an integer and its bytes. A key, such as that of a
// person whose count was reset, is in the chain as its HMAC-SHA-256 under a secret that only its row has; key and secret
// are in another table, and deleting them leaves the chain as it is.
//
// [Log.Verify] finds a row that was changed, removed, swapped or added by anybody who did not compute all hashes after it
// anew, which takes no secret. What finds that too is a copy of the hashes elsewhere: [Options.Lines] receives each row
// with its hash, and [Log.Verify] compares.
package audit
