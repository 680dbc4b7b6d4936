package policies

import _ "embed"

//go:embed policies.schema.json
var schema string

// Schema returns the JSON Schema (draft 2020-12) of a document, for editors and for programs in other languages. What
// [Decode] accepts it accepts, but not the reverse: it cannot read the texts of policies.
func Schema() []byte { return []byte(schema) }
