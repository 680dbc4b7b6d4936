package keys_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/keys"
)

// A key stands in its name where a person may read it, and a hash of it where not.
func TestNames(t *testing.T) {
	t.Parallel()
	policy := core.MustParse("login: 5/1m")
	plain, secret := keys.New("shop", nil), keys.New("shop", []byte("0123456789abcdef"))
	before := plain.Before(policy, "g1m")
	assert.Equal(t, "shop:1:login:g1m:", before)
	assert.Equal(t, before, secret.Before(policy, "g1m"))
	for key, readable := range map[string]bool{
		"ip=203.0.113.7&route=/login": true,
		"a":                           true,
		strings.Repeat("a", 200):      true,
		strings.Repeat("a", 201):      false,
		"~hash":                       false, // or it could be the hash of another key
		"{tag}":                       false,
		"two words":                   false,
		"line\n":                      false,
		"ü":                           false,
	} {
		name := plain.Of(before, key)
		assert.Equal(t, readable, name == before+key, "%q: %s", key, name)
		if !readable {
			assert.Regexp(t, `^shop:1:login:g1m:~[A-Za-z0-9_-]{43}$`, name)
		}
		hashed := secret.Of(before, key)
		assert.Regexp(t, `^shop:1:login:g1m:~[A-Za-z0-9_-]{43}$`, hashed)
		assert.NotEqual(t, name, hashed)
	}
}

// No two keys have one name.
func TestNamesDiffer(t *testing.T) {
	t.Parallel()
	n := keys.New("weir", nil)
	key := rapid.OneOf(rapid.StringN(1, 8, -1), rapid.StringMatching(`~?[a-z]{1,3}`), rapid.StringN(195, 210, -1))
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		name := n.Of("weir:1:p:g:", a)
		assert.Equal(t, a == b, name == n.Of("weir:1:p:g:", b))
		assert.NotEqual(t, name, n.Of("weir:1:p:g:", strings.TrimPrefix(name, "weir:1:p:g:")+"~"))
	})
}

func TestValidPrefix(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]bool{
		"weir": true, "a.b_c-1": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "a:b": false, "{a}": false, "a b": false, "ä": false,
	} {
		assert.Equal(t, want, keys.ValidPrefix(prefix), prefix)
	}
}
