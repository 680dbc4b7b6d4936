// Obey measures how well nethttp/obey keeps to the limits of servers: in real time, over real connections, with 20
// workers that would send five times what the limit admits.
//
//	go run -C bench ./obey
//
// All rows run side by side, since they mostly wait: the whole takes as long as the longest row, three minutes. The
// servers are weir, go-chi/httprate, and express-rate-limit, for which node and npm must be on the PATH. The four
// processes of a row are real ones, which share one key and nothing else. They begin when a window begins that is
// aligned to the clock, as sliding-counter's are.
//
// Beside them each server has clients with a key of their own that do not obey, as eager as the others. What these are
// admitted is all that the limit admits to anybody. The time that a row takes is a multiple of the time after which the
// whole limit is there again: of 11 s for sliding-window, and else of the window.
//
// The table says how many answers were 429, and how many of them came after the first ten answers; how many requests
// were admitted, and how many of the clients that do not obey; and the bars for both. The command fails if one is missed.
// It also says how many requests were admitted of the process that got least, and how many were not sent because their
// turn did not come within 30 s.
//
//	-rows    a regular expression: only the rows of those servers
//	-quick   12 seconds of each row, and lower bars: to see that all work; CI does it
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
	quick := flags.Bool("quick", false, "12 seconds of each row, and lower bars")
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

// shorten lets a row take so little time that its figures say no more than that requests are sent, and that they obey.
// On a machine that has much else to do one or two of them may go wrong.
func (r *row) shorten() {
	r.lasts = quickly
	r.bars = bars{refused: .02, admitted: .10}
	if r.processes > 1 {
		r.bars.refused = .10
	}
}

// report prints the table, in which each server without obey comes last. The error says how many rows have missed a bar.
func report(out io.Writer, outcomes []outcome) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "server\tprocesses\tanswers\t429\tafter the first ten\tbar\tadmitted\tbar\tleast of a process\tnot sent\tmet")
	missed := 0
	greedy := map[*server]*tally{}
	for _, o := range outcomes {
		if o.skipped != "" {
			fmt.Fprintf(table, "%s\t%d\tskipped: %s\n", o.name, o.processes, o.skipped)
			continue
		}
		met := "yes"
		if !o.met() {
			missed++
			met = "NO"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d (%.1f %%)\t<= %.1f %%\t%d of %d (%.1f %%)\t>= %.0f %%\t%d\t%d\t%s\n", o.name, o.processes,
			o.sent.answers, o.sent.refused, o.sent.refusedLater, 100*o.sent.share(o.sent.refusedLater), 100*o.bars.refused,
			o.sent.admitted, o.greedy.admitted, 100*o.shareAdmitted(), 100*o.bars.admitted, o.sent.least, o.sent.unsent, met)
		greedy[o.server] = o.greedy
	}
	for _, o := range outcomes {
		if g := greedy[o.server]; g != nil {
			fmt.Fprintf(table, "%s, without obey\t1\t%d\t%d\t%d (%.1f %%)\t\t%d\n", o.name,
				g.answers, g.refused, g.refusedLater, 100*g.share(g.refusedLater), g.admitted)
			delete(greedy, o.server)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, o := range outcomes {
		if o.skipped != "" {
			continue
		}
		for text, n := range o.sent.failed {
			fmt.Fprintf(out, "%s, %d processes: %d times %s\n", o.name, o.processes, n, text)
		}
		for text, n := range o.greedy.failed {
			fmt.Fprintf(out, "%s, without obey: %d times %s\n", o.name, n, text)
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d rows have missed a bar", missed, len(outcomes))
	}
	return nil
}
