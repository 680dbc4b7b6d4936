package inspect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/keyfunc"
)

func TestMask(t *testing.T) {
	t.Parallel()
	m := newMasker(false)
	for key, want := range map[string]string{
		"":                                   "",
		"ip=203.0.113.77":                    "ip=203.0.113.0/24",
		"ip=203.0.113.77&route=/items/%7Bid": "ip=203.0.113.0/24&route=/items/%7Bid",
		"ip=10.0.0.0/8":                      "ip=10.0.0.0/8",
		"ip=2001:db8:1:2::/64":               "ip=2001:db8:1::/48",
		"ip=2001:db8:1:2:3:4:5:6":            "ip=2001:db8:1::/48",
		"ip=::ffff:203.0.113.77":             "ip=203.0.113.0/24",
		"user=anna":                          "user=#",
		"header.x-key=anna":                  "header.x-key=#",
		"anna@example.com":                   "#",
		"anna=7@example.com":                 "anna=#",
		"an na=7":                            "#",
		"<script>=1":                         "#",
		"ip=anna":                            "ip=#",
		strings.Repeat("a=1&", 20):           "#",
	} {
		masked := m.key(key)
		got, hash, hashed := strings.Cut(masked, "#")
		if hashed {
			got += "#"
			assert.Regexp(t, "^[0-9a-f]{8}$", hash)
		}
		assert.Equal(t, want, got, key)
		assert.Equal(t, masked, m.key(key), "the same each time")
	}
	assert.NotEqual(t, m.key("user=anna"), newMasker(false).key("user=anna"), "nobody can try which key it is")
	assert.NotEqual(t, m.key("user=anna"), m.key("user=bert"))
	assert.Equal(t, "user=anna", newMasker(true).key("user=anna"))
}

// The error of a document of policies names its place, which may be a key.
func TestMaskReason(t *testing.T) {
	t.Parallel()
	m := newMasker(false)
	for text, want := range map[string]string{
		`p.json:1:73: policies.api.keys["header=anna \"7\""]: "no": at offset 0`: `^p\.json:1:73: policies\.api\.keys\[#[0-9a-f]{8}\]: "no": at offset 0$`,
		`policies.api.keys.anna: found the number 5`:                             `^policies\.api\.keys\[#[0-9a-f]{8}\]: found the number 5$`,
		`policies.api.Keys["anna`:                                                `^policies\.api\.Keys\[#[0-9a-f]{8}\]$`,
		`Keys["mail"]["user=anna"]: no; Keys["mail"]["user=bert"]: no`:           `^Keys\[#[0-9a-f]{8}\]: no; Keys\[#[0-9a-f]{8}\]: no$`,
		"Redis is gone": "^Redis is gone$",
	} {
		assert.Regexp(t, want, m.reason(text))
		assert.Equal(t, text, newMasker(true).reason(text))
	}
}

// No part of a key but a network, a route and its kind is on the page.
func TestMaskHidesEverything(t *testing.T) {
	t.Parallel()
	m := newMasker(false)
	rapid.Check(t, func(t *rapid.T) {
		var k keyfunc.Key
		secret := rapid.StringMatching(`[g-z]{6,20}`).Draw(t, "secret") // no digits of a hash
		for _, kind := range rapid.SliceOfN(rapid.SampledFrom([]string{"user", "header", "ip", "hash"}), 1, 5).Draw(t, "kinds") {
			k.Add(kind, secret)
		}
		for _, text := range []string{k.String(), secret, secret + "&" + secret, "x" + secret + "@"} {
			if shown := m.key(text); strings.Contains(shown, secret) {
				t.Fatalf("%q is shown as %q", text, shown)
			}
		}
	})
}
