package denials

import "crypto/sha256"

// maxKey is the longest key that is kept as it is.
const maxKey = 200

// nameOf is the name of a key. It shares the memory of one that is short.
func nameOf(key string) name {
	if len(key) <= maxKey {
		return name{text: key}
	}
	sum := sha256.Sum256([]byte(key))
	return name{text: string(sum[:]), hashed: true}
}
