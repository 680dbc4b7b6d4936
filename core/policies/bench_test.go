package policies_test

import (
	"fmt"
	"testing"

	"github.com/weir-go/weir/core/policies"
)

// BenchmarkDocument writes, checks and reads a document of two hundred policies.
func BenchmarkDocument(b *testing.B) {
	d := &policies.Document{App: "pay", Version: policies.Version{Generation: 1, Revision: 1}, Policies: map[string]policies.Policy{}}
	for i := range 200 {
		d.Policies[fmt.Sprint("policy-", i)] = policies.Policy{Text: fmt.Sprint(i+1, "/1m; shadow"), Tiers: map[string]string{"pro": "5000/1m"}}
	}
	data, err := d.Encode()
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"encode": func() error { _, err := d.Encode(); return err },
		"check":  func() error { return d.Check() },
		"decode": func() error { _, err := policies.Decode(data); return err },
		"obey":   func() error { _, err := policies.DecodePublished(data); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
