package main

import (
	"context"
	"fmt"
	"io"

	"github.com/weir-go/weir/admin/demo"
)

// runDemo runs a demo until ctx ends.
func runDemo(ctx context.Context, out io.Writer) error {
	d, err := demo.Start(ctx, demo.Options{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "weir-admin: the API is at %s, with the token %s\n", d.URL, d.Token)
	<-ctx.Done()
	return d.Close()
}
