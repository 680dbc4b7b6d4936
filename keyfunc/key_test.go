package keyfunc_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/keyfunc"
)

type part struct{ kind, text string }

func textOf(parts ...part) string {
	var k keyfunc.Key
	for _, p := range parts {
		k.Add(p.kind, p.text)
	}
	return k.String()
}

func TestKeyText(t *testing.T) {
	long := strings.Repeat("é{", 50)
	for _, c := range []struct {
		name, want string
		parts      []part
	}{
		{"empty", "", nil},
		{"plain", "ip=203.0.113.7", []part{{"ip", "203.0.113.7"}}},
		{"two", "ip=::1&route=/items/%7Bid%7D", []part{{"ip", "::1"}, {"route", "/items/{id}"}}},
		{"empty part", "route=", []part{{"route", ""}}},
		{"empty parts", "a=&b=&=", []part{{"a", ""}, {"b", ""}, {"", ""}}},
		{"separators", "user=a%3Db%26c%25d%7Ee", []part{{"user", "a=b&c%d~e"}}},
		{"bad kind", "a%3D%7B=b", []part{{"a={", "b"}}},
		{"plain bytes", "user=azAZ09_.:/-", []part{{"user", "azAZ09_.:/-"}}},
		{"NUL", "user=a%00b", []part{{"user", "a\x00b"}}},
		{"invalid UTF-8", "user=%FF%C3%A9", []part{{"user", "\xffé"}}},
		{"CR LF", "user=a%0D%0AX:%201", []part{{"user", "a\r\nX: 1"}}},
		{"cluster tag", "user=%7Ba%7D", []part{{"user", "{a}"}}},
		{"128 bytes", "user=" + strings.Repeat("a", 128), []part{{"user", strings.Repeat("a", 128)}}},
		{"129 bytes", "user=" + sum(strings.Repeat("a", 129)), []part{{"user", strings.Repeat("a", 129)}}},
		{"long, not plain", "user=" + sum(long), []part{{"user", long}}},
		{"the text of a sum", "user=%7E" + sum(long)[1:], []part{{"user", sum(long)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, textOf(c.parts...))
		})
	}
}

func TestKeyBuffer(t *testing.T) {
	var k keyfunc.Key
	assert.Zero(t, k.Len())
	assert.Empty(t, k.String())
	k.Add("user", "a")
	text := k.String()
	assert.Equal(t, len(text), k.Len())
	k.Reset()
	assert.Zero(t, k.Len())
	k.Add("user", "b")
	assert.Equal(t, "user=a", text, "a text is a copy")
	assert.Equal(t, "user=b", k.String())
	assert.Equal(t, "user=b", k.Text())
	k.Reset()
	assert.Empty(t, k.Text())
}

func TestKeyAddPrefix(t *testing.T) {
	for prefix, want := range map[string]string{
		"203.0.113.7/32":          "ip=203.0.113.7",
		"203.0.113.7/24":          "ip=203.0.113.0/24",
		"0.0.0.0/0":               "ip=0.0.0.0/0",
		"2001:db8::1/128":         "ip=2001:db8::1",
		"2001:DB8:0:0:1::1/64":    "ip=2001:db8::/64",
		"2001:db8::1.2.3.4/128":   "ip=2001:db8::102:304", // not IPv4-mapped
		"::ffff:203.0.113.7/128":  "ip=203.0.113.7",
		"::ffff:cb00:7107/120":    "ip=203.0.113.0/24",
		"::ffff:203.0.113.7/95":   "ip=::fffe:0:0/95",
		"::ffff:255.255.255.0/96": "ip=0.0.0.0/0",
	} {
		var k keyfunc.Key
		k.AddPrefix(netip.MustParsePrefix(prefix))
		assert.Equal(t, want, k.String(), prefix)
	}
	var k keyfunc.Key
	k.Add("a", "")
	k.AddPrefix(netip.Prefix{})
	assert.Equal(t, "a=&ip=", k.String())
}

func TestKeyDoesNotAllocate(t *testing.T) {
	long := strings.Repeat("x", 10<<20)
	p4, p6 := netip.MustParsePrefix("203.0.113.7/32"), netip.MustParsePrefix("2001:db8::/64")
	var k keyfunc.Key
	run := func() {
		k.Reset()
		k.AddPrefix(p4)
		k.AddPrefix(p6)
		k.Add("user", "with {braces} and ~")
		k.Add("user", long[:129])
	}
	run()
	assert.Zero(t, testing.AllocsPerRun(100, run))
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = k.Text() }))
	assert.Zero(t, testing.AllocsPerRun(1, func() { k.Reset(); k.Add("user", long) }))
	assert.Equal(t, len("user=~")+43, k.Len())
}

// No two lists of parts meet, and neither do two kinds.
func TestKeyTellsPartsApart(t *testing.T) {
	assert.NotEqual(t, textOf(part{"user", "a:b"}, part{"path", "c"}), textOf(part{"user", "a"}, part{"path", "b:c"}))
	assert.NotEqual(t, textOf(part{"user", "10.0.0.1"}), textOf(part{"ip", "10.0.0.1"}))

	// Few symbols and joints that move make near misses likely.
	text := rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("ab=&%~26")), 0, 6, -1),
		rapid.Map(rapid.IntRange(127, 130), func(n int) string { return strings.Repeat("a", n) }),
		rapid.Map(rapid.IntRange(127, 130), func(n int) string { return sum(strings.Repeat("a", n)) }),
		rapid.String(),
	)
	parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) part {
		return part{rapid.OneOf(rapid.SampledFrom([]string{"ip", "user"}), text).Draw(t, "kind"), text.Draw(t, "text")}
	}), 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		a := parts.Draw(t, "a")
		b := append([]part(nil), a...)
		switch rapid.IntRange(0, 4).Draw(t, "how b differs") {
		case 0:
		case 1:
			b = parts.Draw(t, "b")
		case 2: // one part's text is all the text from there on
			if n := len(b); n > 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "i")
				b = append(b[:i], part{b[i].kind, textOf(a[i:]...)})
			}
		case 3: // the joint between two parts moves
			if len(b) > 1 {
				all := b[0].text + b[1].text
				i := rapid.IntRange(0, len(all)).Draw(t, "joint")
				b[0].text, b[1].text = all[:i], all[i:]
			}
		case 4: // already escaped
			if len(b) > 0 {
				b[0].text = strings.TrimPrefix(textOf(part{"", b[0].text}), "=")
			}
		}
		if same := equal(a, b); same != (textOf(a...) == textOf(b...)) {
			t.Fatalf("same parts %v, but texts %q and %q", same, textOf(a...), textOf(b...))
		}
	})
}

func equal(a, b []part) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

var keyText = regexp.MustCompile(`^[A-Za-z0-9_.:/=&%~-]*$`)

// FuzzKey reads the key back: what can be read back has lost nothing, so no two keys can meet.
func FuzzKey(f *testing.F) {
	f.Add("ip", "203.0.113.7", "route", "/items/{id}")
	f.Add("user", "a=b&c", "", "")
	f.Add("user", "~"+strings.Repeat("x", 43), "x%", "\x00\xff\r\n")
	f.Add("user", strings.Repeat("{}", 65), strings.Repeat("k", 200), strings.Repeat("é", 64))
	f.Fuzz(func(t *testing.T, kind1, text1, kind2, text2 string) {
		parts := []part{{kind1, text1}, {kind2, text2}}
		text := textOf(parts...)
		require.Regexp(t, keyText, text)
		require.LessOrEqual(t, len(text), 4*3*128+3)
		for i, field := range strings.Split(text, "&") {
			kind, value, ok := strings.Cut(field, "=")
			require.True(t, ok)
			requireReads(t, parts[i].kind, kind)
			requireReads(t, parts[i].text, value)
		}
		require.Equal(t, 2, strings.Count(text, "&")+1)
		require.Equal(t, parts[0] == parts[1], textOf(parts[0]) == textOf(parts[1]))
	})
}

// requireReads demands that text says given, as itself or as its sum.
func requireReads(t *testing.T, given, text string) {
	t.Helper()
	if len(given) > 128 {
		require.Equal(t, sum(given), text)
		return
	}
	read, err := unescape(text)
	require.NoError(t, err)
	require.Equal(t, given, read)
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return "~" + base64.RawURLEncoding.EncodeToString(h[:])
}

// unescape is strict: it takes only what Add may have written.
func unescape(s string) (string, error) {
	var b bytes.Buffer
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '~':
			return "", errors.New("unexpected ~")
		case c != '%':
			b.WriteByte(c)
		case i+2 >= len(s):
			return "", errors.New("cut off")
		default:
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil || strings.ToUpper(s[i:i+3]) != s[i:i+3] {
				return "", errors.New("bad escape " + s[i:i+3])
			}
			if keyText.Match([]byte{byte(n)}) && !strings.ContainsRune("=&%~", rune(n)) {
				return "", errors.New("needless escape " + s[i:i+3])
			}
			b.WriteByte(byte(n))
			i += 2
		}
	}
	return b.String(), nil
}
