package filesource_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/filesource"
)

func TestParse(t *testing.T) {
	t.Parallel()
	want := &policies.Document{
		App: "pay", Version: policies.Version{Generation: 1, Revision: 17},
		Policies: map[string]policies.Policy{
			"api": {
				Text:  "200/1m; shadow",
				Tiers: map[string]string{"pro": "5000/1m", "010": "1/1s", "no": "unlimited"},
				Keys:  map[string]string{"user=7": "blocked", "ip=203.0.113.7&route=/login": "5/1m, 20/1h"},
				Apps:  []string{"billing", "shop"},
			},
			"code":  {},
			"login": {Text: "5/1m"},
		},
	}
	for name, text := range map[string]string{
		"blocks": `
# What holds for the app.
format: 1
app: pay
generation: 1
revision: 17
policies:
  api:
    text: 200/1m; shadow # on trial
    tiers:
      pro: 5000/1m
      "010": "1/1s"
      no: unlimited
    keys:
      user=7: blocked
      ip=203.0.113.7&route=/login: 5/1m, 20/1h
    apps: [shop, billing]
  code: {}
  login:
    text: '5/1m'
`,
		"Windows": "\uFEFF---\r\nformat: 1\r\napp: pay\r\ngeneration: 1\r\nrevision: 17\r\npolicies:\r\n  api:\r\n    text: 200/1m; shadow\r\n" +
			"    tiers: {pro: 5000/1m, '010': 1/1s, no: unlimited}\r\n    keys:\r\n      ? user=7\r\n      : blocked\r\n" +
			"      \"ip=203.0.113.7&route=/login\": 5/1m, 20/1h\r\n    apps:\r\n    - billing\r\n    - shop\r\n  code: {}\r\n  login: {text: 5/1m}\r\n...\r\n",
		"JSON": `{"format":1,"app":"pay","generation":1,"revision":17,"policies":{
			"api":{"text":"200/1m; shadow","tiers":{"pro":"5000/1m","010":"1/1s","no":"unlimited"},
			"keys":{"user=7":"blocked","ip=203.0.113.7&route=/login":"5/1m, 20/1h"},"apps":["billing","shop"]},
			"code":{},"login":{"text":"5/1m"}}}`,
	} {
		d, err := filesource.Parse([]byte(text))
		require.NoError(t, err, name)
		assert.Equal(t, want, d, name)
	}
}

// What YAML takes for a number, a date, null or a truth value is not a text, and a number is in plain digits.
func TestNumbersAreTexts(t *testing.T) {
	t.Parallel()
	const head = "format: 1\npolicies:\n  api:\n    text: "
	for _, value := range []string{
		".nan", ".inf", "-.inf", "010", "0o10", "0x10", "0b10", "1_000", "1e9", "60", "1.5", "-1", "+1", "100",
		"", "~", "null", "Null", "true", "False", "2001-01-01", "2001-01-01 00:00:00",
	} {
		_, err := filesource.Parse([]byte(head + value + "\n"))
		require.Error(t, err, value)
		assert.Contains(t, err.Error(), `give a text such as "100/1m", in quotes`, value)
		assert.Regexp(t, `^4:\d+: policies\.api\.text: found `, err.Error(), value)
	}
	for _, value := range []string{"1:30", "1'000", "y", "no", `"60"`, "'010'", "<<"} {
		_, err := filesource.Parse([]byte(head + value + "\n"))
		assert.ErrorContains(t, err, "4:11: policies.api.text:", value)
	}
	for _, format := range []string{"01", "1.0", "1e0", "0x1", "0b1", "+1", "1_0", `"1"`, "", "~", "true", "-1", "0"} {
		_, err := filesource.Parse([]byte("format: " + format + "\npolicies: {}\n"))
		assert.ErrorContains(t, err, "format: found ", format)
	}
	for _, name := range []string{"010", "1", "1.5", "null", "~", "true", "2001-01-01", ".nan", "<<", "[a]", "{a: b}", "*a", "&a b", "!!str b"} {
		_, err := filesource.Parse([]byte("format: 1\npolicies:\n  api:\n    tiers:\n      ? " + name + "\n      : 5/1m\n"))
		require.Error(t, err, name)
		if name != "*a" {
			assert.Regexp(t, `^5:9: `, err.Error(), name)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string // one for each mistake
	}{
		"nothing":       {"", []string{"the file is empty"}},
		"comments":      {"# nothing\n", []string{"the file is empty"}},
		"a text":        {"format", []string{"1:1: found the text \"format\": give an object with the fields of a document"}},
		"a later one":   {"format: 2\nlater: [1, {a: b}]\n", []string{"1:9: format: format 2 is of a later version of weir"}},
		"second":        {"format: 1\npolicies: {}\n---\nformat: 1\npolicies: {}\n", []string{"a second document begins here; remove it"}},
		"second, empty": {"format: 1\npolicies: {}\n---\n", []string{"a second document begins here; remove it"}},
		"an anchor":     {"format: 1\npolicies:\n  a: &a\n    text: 5/1m\n  b: *a\n", []string{`3:6: the anchor "&a"; remove it`, `5:6: the alias "*a"; write the value itself`}},
		"a merge":       {"format: 1\npolicies:\n  a: {text: 5/1m}\n  b:\n    <<: {text: 5/1m}\n", []string{`5:5: the merge "<<"; write the values themselves`}},
		"tags":          {"format: !!int 1\npolicies:\n  a: {text: !!str 5, keys: !x {}}\n  !!binary YQ==: {}\n", []string{`1:9: the tag "!!int"`, `3:13: the tag "!!str"`, `3:28: the tag "!x"`, `4:3: the tag "!!binary"`}},
		"fields": {"format: 1\nredis: redis://127.0.0.1\npolicies:\n  a:\n    text: 5/1m\n    text: 6/1m\n    limit: 7/1m\n", []string{
			`2:1: redis: there is no such field: a document has "format", "app", "generation", "revision", "policies"`,
			`6:5: policies.a.text: this name stands here twice; leave one out`,
			`7:5: policies.a.limit: there is no such field: a policy has "text", "tiers", "keys", "apps"`,
		}},
		"names twice":   {"format: 1\npolicies:\n  login: {}\n  Login: {}\n", []string{`4:3: policies.Login: this name stands here twice`}},
		"the parser's":  {"format: 1\npolicies:\n  a: text: 5/1m\n", []string{`3:10: this is not YAML: mapping values are not allowed in this context`}},
		"an indent":     {"format: 1\npolicies:\n  a:\n    text: 5/1m\n   b: {}\n", []string{`5:4: this is not YAML: did not find expected key`}},
		"a tab":         {"format: 1\npolicies:\n\ta: {}\n", []string{`3:1: this is not YAML: found character that cannot start any token; indent with spaces, not with tabs`}},
		"a bracket":     {"format: 1\npolicies: {a: {text: 5/1m\n", []string{`3:1: this is not YAML: did not find expected`}},
		"no alias":      {"format: 1\npolicies: *p\n", []string{`this is not YAML: unknown anchor 'p' referenced`}},
		"too deep":      {"format: 1\npolicies: {a: {tiers: {b: {c: {d: [e]}}}}}\n", []string{`2:27: policies.a.tiers.b: found an object: give a text`, `2:31: there are more than 5 values within each other`}},
		"an old format": {"format: 0\npolicies: {}\n", []string{`1:9: format: found 0: give 1`}},
		"all of them": {"format: 1\napp: my app\npolicies:\n  login:\n    text: 5/1x\n  \"a b\":\n    tiers:\n      pro: 100\n  c:\n    keys:\n      user=7: block\n", []string{
			`2:6: app: the name "my app" of an app`,
			`5:11: policies.login.text: "5/1x": at offset 3, found "x": expected a unit right after the number`,
			`6:3: policies["a b"]: the name "a b" of a policy`,
			`8:12: policies["a b"].tiers.pro: found the number 100: give a text`,
			`11:15: policies.c.keys["user=7"]: "block": at offset 0`,
		}},
		"a control":  {"format: 1\npolicies: {\x00}\n", []string{"2:12: the control character U+0000; remove it"}},
		"not UTF-8":  {"format: 1\npolicies: {\xff}\n", []string{"2:12: this is not UTF-8"}},
		"UTF-16":     {"\xff\xfef\x00o\x00", []string{"1:1: this is not UTF-8"}},
		"too long":   {strings.Repeat("\n", 200_001), []string{"200001:1: there are more than 200000 lines"}},
		"too large":  {strings.Repeat(" ", filesource.MaxSize+1), []string{"the file has more than 2097152 bytes"}},
		"too nested": {strings.Repeat("[", 33), []string{"1:33: there are more than 32 brackets within each other"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := filesource.Parse([]byte(c.text))
			assert.Nil(t, d)
			var mistakes policies.Mistakes
			require.ErrorAs(t, err, &mistakes)
			require.Len(t, mistakes, len(c.want), "%v", err)
			for i, want := range c.want {
				assert.Contains(t, mistakes[i].Error(), want)
			}
		})
	}
}

// thousands returns a file of n policies with tiers and keys.
func thousands(n int) string {
	var b strings.Builder
	b.WriteString("format: 1\napp: pay\npolicies:\n")
	for i := range n {
		fmt.Fprintf(&b, "  policy-%d:\n    text: %d/1m burst 20; shadow\n    tiers: {pro: 5000/1m, free: 5/1m}\n    keys: {user=7: blocked}\n", i, i+1)
	}
	return b.String()
}

func TestTenThousandPolicies(t *testing.T) {
	t.Parallel()
	d, err := filesource.Parse([]byte(thousands(filesource.MaxPolicies)))
	require.NoError(t, err)
	assert.Len(t, d.Policies, filesource.MaxPolicies)
	_, err = filesource.Parse([]byte(thousands(filesource.MaxPolicies + 1)))
	assert.ErrorContains(t, err, "there are 10001 policies; give at most 10000")
}

func BenchmarkLoad10000(b *testing.B) {
	text := []byte(thousands(filesource.MaxPolicies))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := filesource.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

// Whatever a file has, it is refused with all its mistakes, or what it says can be written and read back.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"format: 1\npolicies:\n  api:\n    text: 200/1m; shadow\n    tiers: {pro: 5000/1m}\n    keys:\n      user=7: blocked\n", thousands(2),
		"format: 1\npolicies: {a: {text: \"\\u0035/1m\", apps: [b, 'c']}}\n", "- - - -", "a: &a [*a]", "? ? ? :", "%YAML 1.1\n---\n{}", "|\n a\n  b", "#\n#\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := filesource.Parse(data)
		if err != nil {
			var mistakes policies.Mistakes
			if d != nil || !errors.As(err, &mistakes) || len(mistakes) == 0 {
				t.Fatalf("%v, %v", d, err)
			}
			return
		}
		if len(d.Policies) > policies.MaxPolicies {
			return
		}
		encoded, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := filesource.Parse(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if !assert.ObjectsAreEqual(d, again) {
			t.Fatalf("%v, then %v", d, again)
		}
	})
}
