package keyfunc

import (
	"crypto/sha256"
	"encoding/base64"
	"unsafe"
)

// longPart is the length in bytes above which a part is replaced by its sum.
const longPart = 128

// Key is the text of a key while it is built. It reads like a query string,
//
//	ip=203.0.113.7&route=/items/%7Bid%7D
//
// and is different for any two lists of parts: equal text means equal kinds and parts in equal order.
//
// The zero Key is empty and ready to use. A Key keeps its buffer over [Key.Reset]; adding a part allocates
// only while the buffer grows. A Key must not be used by two goroutines at the same time.
type Key struct {
	b       []byte
	warning string
}

// Add appends a part of the given kind: "kind=part", after a '&' if there are parts before it. Bytes outside
// [A-Za-z0-9_.:/-] are written as %XX. A part of more than 128 bytes is written as '~' and the base64url
// text of its SHA-256 sum; '~' is escaped everywhere else. part may be empty, which is a part like any other.
// Kind is written in the same way as part.
func (k *Key) Add(kind, part string) { add(k, kind, part) }

// Reset empties the key and keeps its buffer.
func (k *Key) Reset() { k.b, k.warning = k.b[:0], "" }

// Len returns the length of the key's text in bytes, 0 if the key has no parts.
func (k *Key) Len() int { return len(k.b) }

// String returns the key's text, "" if the key has no parts. The text is a copy, which later changes of
// the key do not touch.
func (k *Key) String() string { return string(k.b) }

// Text is like String, but shares the memory of k instead of copying it: it is valid only until k is appended to or
// Reset. Use String for a text that is kept, logged or put into a map.
func (k *Key) Text() string { return unsafe.String(unsafe.SliceData(k.b), len(k.b)) }

// Warning returns what is doubtful about the request, for a log: that the peer's address came without a port. It is ""
// if nothing is doubtful. The key can be used all the same. The text is a constant, so that a program can log it once.
func (k *Key) Warning() string { return k.warning }

// add is Add for text in either form.
func add[T string | []byte](k *Key, kind string, part T) {
	k.begin()
	k.b = append(appendText(k.b, kind), '=')
	k.b = appendText(k.b, part)
}

// addSum adds a part as Add does a long one, however long it is.
func (k *Key) addSum(kind, part string) {
	k.begin()
	k.b = append(appendText(k.b, kind), '=')
	k.b = appendSum(k.b, part)
}

// begin separates a part from the one before it, if there is one.
func (k *Key) begin() { k.b = append(k.b, "&"[:min(1, len(k.b))]...) }

// plain holds true for the bytes that stand for themselves.
var plain = func() (t [256]bool) {
	for c := range t {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '_', c == '.', c == ':', c == '/', c == '-':
			t[c] = true
		}
	}
	return t
}()

func appendText[T string | []byte](b []byte, s T) []byte {
	const hex = "0123456789ABCDEF"
	if len(s) > longPart {
		return appendSum(b, s)
	}
	start := 0 // of the plain bytes not yet written
	for i := range len(s) {
		if c := s[i]; !plain[c] {
			b = append(append(b, s[start:i]...), '%', hex[c>>4], hex[c&15])
			start = i + 1
		}
	}
	return append(b, s[start:]...)
}

// appendSum hashes s in pieces, because a conversion to []byte would copy all of it. One piece needs no allocation.
func appendSum[T string | []byte](b []byte, s T) []byte {
	var sum [sha256.Size]byte
	var piece [512]byte
	n := copy(piece[:], s)
	if n == len(s) {
		sum = sha256.Sum256(piece[:n])
	} else {
		h := sha256.New()
		for ; len(s) > 0; n = copy(piece[:], s) {
			h.Write(piece[:n])
			s = s[n:]
		}
		h.Sum(sum[:0])
	}
	return base64.RawURLEncoding.AppendEncode(append(b, '~'), sum[:])
}
