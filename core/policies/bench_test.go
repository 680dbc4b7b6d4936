package policies_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
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

// BenchmarkAnnouncement reads the largest announcements of a process: those of a thousand are read at once.
func BenchmarkAnnouncement(b *testing.B) {
	p := &policies.Process{App: "pay", ID: "1", Name: "host:1", Version: policies.Version{Generation: 1, Revision: 1}, Meaning: policies.Fleet}
	for i := range 150 {
		p.Rules = append(p.Rules, policies.RuleState{
			Policy: fmt.Sprint("policy-", i), Place: fmt.Sprint("GET /orders/", i), Key: "user", OverLimit: "reject",
			Code: "100/1m", Now: "200/1m; shadow", Meaning: policies.Fleet, Location: stats.Location{Prefix: "pay"},
		})
	}
	u := &stats.Usage{For: time.Hour}
	for i := range 100 {
		of := stats.PolicyUsage{Policy: fmt.Sprint("policy-", i), Tiers: []stats.TierUsage{{UsageCounts: stats.UsageCounts{Admitted: 1000, Refused: 17}}}}
		for _, top := range []*stats.TopKeys{&of.Busiest, &of.Refused} {
			top.For = time.Hour
			for n := range policies.MaxUsageKeys {
				top.Keys = append(top.Keys, stats.KeyCount{Key: fmt.Sprint("user=", n), Count: 100, Error: 1})
			}
		}
		u.Policies = append(u.Policies, of)
	}
	process, usage := p.Encode(), policies.EncodeUsage(u)
	for name, read := range map[string]struct {
		data []byte
		f    func([]byte) error
	}{
		"process": {process, func(data []byte) error { _, err := policies.DecodeProcess(data); return err }},
		"usage":   {usage, func(data []byte) error { _, err := policies.DecodeUsage(data); return err }},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(read.data)))
			for b.Loop() {
				if err := read.f(read.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
