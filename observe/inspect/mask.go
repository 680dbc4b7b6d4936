package inspect

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// masker makes texts of keys that do not say who somebody is.
type masker struct {
	secret [16]byte // of this handler, so that nobody can try which key a hash is of
	off    bool
}

func newMasker(off bool) *masker {
	m := &masker{off: off}
	_, _ = rand.Read(m.secret[:]) // which never fails
	return m
}

// The networks that are shown of addresses.
const (
	maskedV4 = 24
	maskedV6 = 48
)

// key returns a key as the page shows it: of each part its kind, and of an address the network; instead of any other
// part a short hash, which is the same as long as the program runs. Of a key that is not one of keyfunc, all is a part.
func (m *masker) key(key string) string {
	if m.off || key == "" {
		return clip(key)
	}
	var parts []string
	for part := range strings.SplitSeq(key, "&") {
		kind, value, ok := strings.Cut(part, "=")
		switch {
		case !ok || len(parts) == mostParts || !isKind(kind):
			return m.part(key) // whole
		case kind == "ip":
			parts = append(parts, "ip="+m.address(value))
		case kind == "route":
			parts = append(parts, clip(part))
		default:
			parts = append(parts, kind+"="+m.part(part))
		}
	}
	return strings.Join(parts, "&")
}

// keyInPath matches the place of a key in the text of an error about policies, such as keys["user=7"], keys.anna or
// Keys["mail"]["user=7"].
var keyInPath = regexp.MustCompile(`(?i)\bkeys((?:\["(?:\\.|[^"\\])*(?:"\]|$)|\.[^\s.:\[]+)+)`)

// reason returns the text of an error about policies as the page shows it: without the keys that have numbers there.
func (m *masker) reason(text string) string {
	if !m.off {
		text = keyInPath.ReplaceAllStringFunc(text, func(place string) string {
			const field = len("keys")
			return place[:field] + "[" + m.part(place[field:]) + "]"
		})
	}
	return clip(text)
}

const (
	mostParts   = 8
	longestKind = 40
)

// isKind reports whether a text is like the kinds that code gives to parts, such as "ip" or "api-key".
func isKind(text string) bool {
	for _, c := range []byte(text) {
		if !strings.ContainsRune("_-.:", rune(c)) && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return text != "" && len(text) <= longestKind
}

// address returns the network of an address, or of a network that is smaller than it.
func (m *masker) address(text string) string {
	if u, err := url.PathUnescape(text); err == nil {
		text = u
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return m.part(text)
		}
		network = netip.PrefixFrom(addr.WithZone(""), addr.BitLen())
	}
	addr, bits := network.Addr(), network.Bits()
	if addr.Is4In6() {
		addr, bits = addr.Unmap(), max(bits-96, 0)
	}
	most := maskedV6
	if addr.Is4() {
		most = maskedV4
	}
	return netip.PrefixFrom(addr, min(bits, most)).Masked().String()
}

// part returns a short hash of a part.
func (m *masker) part(text string) string {
	mac := hmac.New(sha256.New, m.secret[:])
	mac.Write([]byte(text))
	return "#" + hex.EncodeToString(mac.Sum(nil)[:4])
}

// longest is the number of bytes of a text that the page shows, such as the name of a policy.
const longest = 200

// clip returns a text that is valid, on one line and not too long: no character in it changes what is around it.
func clip(text string) string {
	if len(text) > longest {
		return printable(text[:longest]) + "..."
	}
	return printable(text)
}

// printable returns a text with nothing in it that a terminal or a browser would obey, but for what is allowed.
func printable(text string, allowed ...rune) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || slices.Contains(allowed, r) {
			return r
		}
		return utf8.RuneError
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}
