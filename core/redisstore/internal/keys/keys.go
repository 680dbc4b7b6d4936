// Package keys names what a store keeps in Redis: prefix:1:policy:shape:key, where 1 is the version of the stored
// format. The key is readable where it is short and harmless, else it is a hash that begins with "~", which no readable
// key does.
package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/stats"
)

// format is the version of what is stored. Another one would leave these keys alone, so that two versions can serve
// side by side.
const format = ":1:"

// hashed begins what stands for a key that is not to be read, and no other.
const hashed = '~'

// maxReadable is the longest key that is kept readable.
const maxReadable = 200

// Names makes the names of a store's keys.
type Names struct {
	prefix string
	secret []byte
	given  bool // a hash among the keys is one that Of has made
}

// New returns the names that begin with prefix, with keys that are hashed if there is a secret.
func New(prefix string, secret []byte) Names {
	return Names{prefix: prefix + format, secret: append([]byte(nil), secret...)}
}

// Given returns the same names for keys that Of has hashed already, as far as it has.
func (n Names) Given() Names {
	n.given = true
	return n
}

// Prefix returns the beginning of all names, with the version of the format.
func (n Names) Prefix() string { return n.prefix }

// Location returns where the keys are.
func (n Names) Location() stats.Location {
	return stats.Location{Prefix: strings.TrimSuffix(n.prefix, format), Hashed: len(n.secret) > 0}
}

// Before returns what the names of all keys of a policy begin with, of which it keeps a state of that shape.
func (n Names) Before(p core.Policy, shape string) string {
	return n.prefix + p.Name() + ":" + shape + ":"
}

// Board returns the name of a board. No key has that name, because a policy's name is not empty. It reports whether the board's name has
// 1 to 200 letters, digits and "_.~:/=&%@-".
func (n Names) Board(board string) (name string, ok bool) {
	ok = len(board) > 0 && len(board) <= maxReadable
	for i := 0; ok && i < len(board); i++ {
		ok = safe[board[i]]
	}
	return n.prefix + ":top:" + board, ok
}

// Of returns the name of a key that begins with before. The key stands in it as it is if not a byte of it can break a
// log line or place a Cluster's hash tag.
func (n Names) Of(before, key string) string {
	readable := len(n.secret) == 0 && len(key) <= maxReadable && key[0] != hashed
	for i := 0; readable && i < len(key); i++ {
		readable = safe[key[i]]
	}
	if readable || n.given && isHash(key) {
		return before + key
	}
	return before + n.hash(key)
}

// isHash reports whether a key looks like a hash of one.
func isHash(key string) bool {
	if len(key) != 1+base64.RawURLEncoding.EncodedLen(sha256.Size) || key[0] != hashed {
		return false
	}
	return strings.Trim(key[1:], letters+"_-") == ""
}

// hash returns what stands for a key that is not to be read.
func (n Names) hash(key string) string {
	h := sha256.New()
	if len(n.secret) > 0 {
		h = hmac.New(sha256.New, n.secret)
	}
	h.Write([]byte(key))
	return string(hashed) + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

var safe = func() (out [256]bool) {
	for _, c := range []byte(letters + "_.~:/=&%@-") {
		out[c] = true
	}
	return out
}()

// ValidPrefix reports whether s may begin the names of a store's keys.
func ValidPrefix(s string) bool {
	return len(s) >= 1 && len(s) <= 64 && strings.Trim(s, letters+"_.-") == ""
}
