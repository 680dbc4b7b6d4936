// Arrivals plays patterns of requests through every algorithm of weir and draws what is admitted and refused, and when.
// It runs in simulated time, so that the pictures are the same everywhere:
//
//	go run -C bench ./arrivals -out arrivals
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("out", ".", "the directory to write the pictures to")
	flag.Parse()
	if err := run(context.Background(), *out); err != nil { //nolint:forbidigo // a main is where a context begins
		fmt.Fprintln(os.Stderr, "arrivals:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	for _, p := range patterns {
		svg, err := picture(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		path := filepath.Join(dir, p.name+".svg")
		if err := os.WriteFile(path, svg, 0o644); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
