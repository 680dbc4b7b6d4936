package envoyrls

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkFind(b *testing.B) {
	tree := mustLoad(b, basic+"  - {key: doc, value: files/*, rate_limit: {unit: day, requests_per_unit: 5}}\n"+
		"  - {key: client, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}\n")
	for name, entries := range map[string][]string{
		"value":   {"user", "alice"},
		"any":     {"user", "203.0.113.7"},
		"nested":  {"tenant", "gold", "method", "POST"},
		"pattern": {"doc", "files/a.pdf"},
		"metric":  {"client", "203.0.113.7"},
		"none":    {"user", "free"},
	} {
		d := descriptor(entries...)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tree.find("shop", d)
			}
		})
	}
}

func BenchmarkFindAmongPatterns(b *testing.B) {
	var text strings.Builder
	text.WriteString("domain: shop\ndescriptors:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - {key: path, value: /files/%d/*, rate_limit: {unit: day, requests_per_unit: 5}}\n", i)
	}
	tree := mustLoad(b, text.String())
	d := descriptor("path", "/files/999/a.pdf")
	b.ReportAllocs()
	for b.Loop() {
		tree.find("shop", d)
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, rules := range []int{10_000, 100_000} {
		var text strings.Builder
		text.WriteString("domain: shop\ndescriptors:\n")
		for i := range rules {
			fmt.Fprintf(&text, "  - key: user\n    value: user%d\n    rate_limit:\n      unit: minute\n      requests_per_unit: 5\n", i)
		}
		files := []File{{Name: "shop.yaml", Data: []byte(text.String())}}
		b.Run(strconv.Itoa(rules), func(b *testing.B) {
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			for b.Loop() {
				tree, err := load(files, false)
				require.NoError(b, err)
				require.Len(b, tree.rules, rules)
			}
		})
	}
}
