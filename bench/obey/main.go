// Obey measures how well nethttp/obey keeps to the limits of servers: in real time, over real connections, with workers
// that would send five times what the limit admits.
//
//	go run -C bench ./obey
//
// All rows run side by side, since they mostly wait: the whole takes as long as the longest row, three minutes. Each has
// a server with its limit: weir, go-chi/httprate, and express-rate-limit, for which node and npm must be on the PATH.
// Where a row has four processes, they are real ones, which share one key and nothing else. The last row sends without
// obey.
//
// The table says how many answers were 429, and how many of them came after the first ten answers; what was admitted, as
// a share of what the limit admits to a client that knows it; and the bars for both. The command fails if one is missed.
//
//	-rows    a regular expression: only those rows
//	-quick   12 seconds of each row, and no bar for what is admitted; CI does it
//
// With WEIR_REQUIRE_NODE=1 it fails where node or npm is missing; else it leaves those rows out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/internal/hosttest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // a main is where a context begins
	defer stop()
	isChild, err := child(ctx, os.Stdin, os.Stdout)
	if !isChild {
		err = command(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "obey:", err)
		os.Exit(1)
	}
}

// The time that -quick gives each row: longer than a window of ten seconds.
const quickly = 12 * time.Second

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("obey", flag.ContinueOnError)
	only := flags.String("rows", "", "a regular expression for the rows to run")
	quick := flags.Bool("quick", false, "12 seconds of each row, and no bar for what is admitted")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	wanted := slices.DeleteFunc(rows(), func(r row) bool { return !chosen.MatchString(r.name) })
	if *quick {
		for i := range wanted {
			wanted[i].shorten()
		}
	}
	if len(wanted) == 0 {
		return fmt.Errorf("-rows %s matches no row", *only)
	}
	var outcomes []outcome
	err = hosttest.Run(ctx, "obey", func(tb testing.TB) { outcomes = measure(tb, wanted) })
	if err != nil {
		return err
	}
	return report(out, outcomes)
}

// shorten lets a row take little time, too little for a share of what the limit admits.
func (r *row) shorten() {
	r.lasts = quickly
	if r.bars != nil {
		r.bars = &bars{refused: r.bars.refused}
	}
}

// report prints the table. The error says how many rows have missed a bar.
func report(out io.Writer, outcomes []outcome) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "server\tprocesses\tanswers\t429\tafter the first ten\tbar\tof what the limit admits\tbar\tmet")
	missed := 0
	for _, o := range outcomes {
		if o.skipped != "" {
			fmt.Fprintf(table, "%s\t%d\tskipped: %s\n", o.name, o.processes, o.skipped)
			continue
		}
		refused, admitted, met := "-", "-", "-"
		if o.bars != nil {
			refused, met = fmt.Sprintf("<= %.1f %%", 100*o.bars.refused), "yes"
			if o.bars.admitted > 0 {
				admitted = fmt.Sprintf(">= %.0f %%", 100*o.bars.admitted)
			}
		}
		if !o.met() {
			missed++
			met = "NO"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d (%.1f %%)\t%s\t%d (%.1f %%)\t%s\t%s\n", o.name, o.processes,
			o.answers, o.refused, o.refusedLater, 100*o.shareRefused(), refused, o.admitted, 100*o.shareAdmitted(), admitted, met)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, o := range outcomes {
		for text, n := range o.failed {
			fmt.Fprintf(out, "%s, %d processes: %d times %s\n", o.name, o.processes, n, text)
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d rows have missed a bar", missed, len(outcomes))
	}
	return nil
}
