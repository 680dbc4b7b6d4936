package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/weir-go/weir/bench/internal/host"
)

// run calls f with a testing.TB whose failure is the error.
func run(ctx context.Context, f func(tb testing.TB)) error { return host.Run(ctx, "compare", f) }

// named says in each failure which contender it was.
type named struct {
	testing.TB

	name string
}

func (n named) Errorf(format string, args ...any) {
	n.TB.Errorf("%s: "+format, append([]any{n.name}, args...)...)
}

func (n named) Fatalf(format string, args ...any) {
	n.TB.Fatalf("%s: "+format, append([]any{n.name}, args...)...)
}
func (n named) Fatal(args ...any) { n.Fatalf("%s", fmt.Sprint(args...)) }
