// Arrivals plays patterns of requests through every algorithm of weir and draws what
// is admitted and refused, and when. It runs in simulated time, so that the pictures
// are the same everywhere:
//
//	go run -C bench ./arrivals -out arrivals
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("out", ".", "the directory to write the pictures to")
	png := flag.Bool("png", false, "write PNG instead of SVG")
	flag.Parse()
	format := "svg"
	if *png {
		format = "png"
	}
	err := run(context.Background(), *out, format) //nolint:forbidigo // a main is where a context begins
	if err != nil {
		fmt.Fprintln(os.Stderr, "arrivals:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, format string) error {
	for _, p := range patterns {
		var picture bytes.Buffer
		if err := draw(ctx, &picture, p, format); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		path := filepath.Join(dir, p.name+"."+format)
		if err := os.WriteFile(path, picture.Bytes(), 0o644); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
