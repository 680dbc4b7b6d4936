package publish_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/redistest"
)

// A round of a thousand apps in which nothing differs, and one in which all do.
func BenchmarkRound(b *testing.B) {
	rdb := redistest.Single(b).Client(b, once)
	r := recordtest.Open(b, sqltest.New(b))
	for app := range record.MaxApps {
		_, err := r.Change(b.Context(), record.Change{
			App: fmt.Sprint("app", app), Action: "set",
			Edits: []record.Edit{{Name: "api", Policy: &policies.Policy{Text: "100/1m"}}},
		})
		require.NoError(b, err)
	}
	p := publish.New(r, rdb, quiet)
	for name, before := range map[string]func(){"level": func() {}, "lost": func() { rdb.FlushAll(b.Context()) }} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before()
				if err := p.Round(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
