package envoyrls

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The names of counters are sanitized as envoyproxy/ratelimit does it, by the same expression.
func TestSanitized(t *testing.T) {
	ipv4 := regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
	rapid.Check(t, func(t *rapid.T) {
		name := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"1", "22", "333", "4444", ".", ".", ".", "a", "_", ":", "|", "10.0.0.1", "é"})).Draw(t, "name"), "")
		want := ipv4.ReplaceAllStringFunc(strings.NewReplacer(":", "_", "|", "_").Replace(name), func(ip string) string {
			return strings.ReplaceAll(ip, ".", "_")
		})
		require.Equal(t, want, sanitized(name))
	})
	require.Equal(t, "a\uFFFDb", sanitized("a\xffb"))
	require.Equal(t, labels{"edge", "user_1", "path"}, labelsOf("edge.user_1.path.method_GET"))
	require.Equal(t, labels{"edge", "user", ""}, labelsOf("edge.user"))
	require.Equal(t, labels{"edge", "user_10_0_0_1", "path"}, labelsOf("edge.user_10.0.0.1.path"))
}

// A label has no more bytes than it may, and no half of a character.
func TestLabelsAreShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLabel-1)
	require.Equal(t, labels{"edge", long + "y", long}, labelsOf("edge."+long+"yz."+long+"é.more"))
}
