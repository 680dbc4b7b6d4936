package filesource_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/filesource"
)

// anyText draws texts that need quotes in YAML, and texts that do not.
var anyText = rapid.OneOf(
	rapid.SampledFrom([]string{
		"010", "1.5", "null", "~", "true", "yes", "no", "2001-01-01", ".nan", "1_000", "0x10", "- a", "a: b", "a #b", "#a", "*a", "&a", "!a", "%a",
		"'", `"`, `\`, "{", "[", "?", ": ", "@", "`", "|", ">", " a", "a ", "ä", "中", "😀", "user=7", "ip=2001:db8::/64&route=/login",
	}),
	rapid.StringMatching(`[ -~äß中😀]{1,30}`),
)

// JSON and YAML of one document mean the same, however YAML writes it.
func TestJSONAndYAMLMeanTheSame(t *testing.T) {
	t.Parallel()
	type policy struct {
		Text  string            `yaml:"text,omitempty"`
		Tiers map[string]string `yaml:"tiers,omitempty"`
		Keys  map[string]string `yaml:"keys,omitempty,flow"`
		Apps  []string          `yaml:"apps,omitempty"`
	}
	type file struct {
		Format     int               `yaml:"format"`
		App        string            `yaml:"app"`
		Generation int64             `yaml:"generation"`
		Revision   int64             `yaml:"revision"`
		Policies   map[string]policy `yaml:"policies"`
	}
	texts := rapid.SampledFrom([]string{"5/1m", "200/1m burst 20; shadow", "20/1s, 1000/1h; fail closed", "unlimited"})
	rapid.Check(t, func(t *rapid.T) {
		d := &policies.Document{
			App:      rapid.SampledFrom([]string{"pay", "null", "010", "1.5", "2001-01-01"}).Draw(t, "app"),
			Version:  policies.Version{Generation: rapid.Int64Range(1, 9).Draw(t, "generation"), Revision: rapid.Int64Range(1, 1<<62).Draw(t, "revision")},
			Policies: map[string]policies.Policy{},
		}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b.c", "1", "0x10", "true", "null", "-"}), 0, 4, rapid.ID[string]).Draw(t, "names") {
			p := policies.Policy{Text: "7/1s"}
			if tiers := rapid.MapOfN(anyText, texts, 0, 1).Draw(t, "tiers"); len(tiers) > 0 {
				p.Tiers = tiers
			}
			if keys := rapid.MapOfN(anyText, texts, 0, 3).Draw(t, "keys"); len(keys) > 0 {
				p.Keys = keys
			}
			if rapid.Bool().Draw(t, "apps") {
				p.Apps = []string{"1.0", "billing"}
			}
			d.Policies[name] = p
		}
		encoded, err := d.Encode()
		require.NoError(t, err)
		fromJSON, err := policies.Decode(encoded)
		require.NoError(t, err)
		require.Equal(t, d, fromJSON)
		same, err := filesource.Parse(encoded)
		require.NoError(t, err)
		require.Equal(t, d, same)

		f := file{policies.Format, d.App, d.Version.Generation, d.Version.Revision, map[string]policy{}}
		for name, p := range d.Policies {
			f.Policies[name] = policy(p)
		}
		text, err := yaml.Marshal(f)
		require.NoError(t, err)
		fromYAML, err := filesource.Parse(text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, d, fromYAML, "%s", text)
	})
}
