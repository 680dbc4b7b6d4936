package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/weir-go/weir/core"
)

// names makes the names of keys: prefix:1:policy:shape:key, where 1 is the version
// of the stored format. The key is readable where it is short and harmless, else a
// hash that begins with "~", which no readable key does.
type names struct {
	prefix string
	secret []byte
}

// format is the version of what is stored. Another one would leave these keys
// alone, so that two versions can serve side by side.
const format = ":1:"

// maxReadable is the longest key that is kept readable.
const maxReadable = 200

func newNames(prefix string, secret []byte) names {
	return names{prefix + format, append([]byte(nil), secret...)}
}

func (n names) key(p core.Policy, key string) string { return n.of(p, p.Spec().Shape(), key) }

// permits is the name of the permits of a key: they have a shape of their own.
func (n names) permits(p core.Policy, key string) string { return n.of(p, "p", key) }

func (n names) of(p core.Policy, shape, key string) string {
	if len(n.secret) > 0 {
		mac := hmac.New(sha256.New, n.secret)
		mac.Write([]byte(key))
		key = hashed(mac.Sum(nil))
	} else if !readable(key) {
		sum := sha256.Sum256([]byte(key))
		key = hashed(sum[:])
	}
	return n.prefix + p.Name() + ":" + shape + ":" + key
}

func hashed(sum []byte) string { return "~" + base64.RawURLEncoding.EncodeToString(sum) }

// readable reports whether a key may stand in a name as it is: not a byte in it can
// break a log line or place a cluster's hash tag.
func readable(key string) bool {
	if len(key) > maxReadable || key[0] == '~' {
		return false
	}
	for i := range len(key) {
		if !safe[key[i]] {
			return false
		}
	}
	return true
}

var safe = func() (out [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.~:/=&%@-") {
		out[c] = true
	}
	return out
}()

func validPrefix(s string) bool {
	return len(s) >= 1 && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == ""
}
