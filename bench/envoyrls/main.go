// Envoyrls holds `weir rls` against envoyproxy/ratelimit, the service whose place it takes: both run as processes of their
// own beside one Redis, which this program starts, and are asked by the same gRPC client.
//
//	go run -C bench/envoyrls . agree   # random requests of random configurations are answered alike
//	go run -C bench/envoyrls . speed   # answers a second, and the time of one
//	go run -C bench/envoyrls . slow    # the time of an answer while Redis stands still
//
// It is run by hand, because the other service takes most of a minute to compile.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/weir-go/weir/internal/hosttest"
)

var parts = map[string]func(testing.TB){"agree": agree, "speed": speed, "slow": slow}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "envoyrls:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		return fmt.Errorf("the first argument is %q, expected agree, speed or slow", os.Args[1:])
	}
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		return err
	}
	return hosttest.Run(context.Background(), "envoyrls", parts[os.Args[1]]) //nolint:forbidigo // a main is where a context begins
}
