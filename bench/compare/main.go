// Compare runs weir and other limiters of Go side by side and writes a table, the samples, and charts:
//
//	go run -C bench ./compare -out compare
//
// Contenders take turns: each runs for a moment in every round, in each round another one first, so that a machine
// whose speed wanders slows all. Figures are medians over the rounds, and ratios medians of the ratios within a round.
// Each contender is checked first: that it admits exactly its limit.
//
//	-list              the sections and their rows
//	-sections          a regular expression: only those
//	-draw              the table and the charts again, of the samples that are there
//	-quick             a moment of each, to see that all work; CI does it
//
// It needs Unix, and redis-server on the PATH, of which it starts what it needs. Files of an earlier run in the directory
// are replaced, and sections that did not run keep their samples.
//
// The contenders are in limiters_*.go and middleware.go, their work in sections_*.go, and the files in report*.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // a main is where a context begins
	defer stop()
	isChild, err := child(ctx, os.Stdin, os.Stdout)
	if !isChild {
		err = command(ctx, os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	out := flags.String("out", "", "the directory to write results to; \"\" prints the table alone")
	which := flags.String("sections", "", "a regular expression for the sections to run")
	var size scale
	flags.IntVar(&size.rounds, "rounds", 7, "how many rounds")
	flags.DurationVar(&size.slice, "slice", 250*time.Millisecond, "how long each contender runs in a round")
	flags.BoolVar(&size.quick, "quick", false, "one short round with few keys, for its checks alone")
	list := flags.Bool("list", false, "print the sections and their rows, and run none")
	draw := flags.Bool("draw", false, "write the table and the charts of the samples in -out again, and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if size.quick {
		size.rounds, size.slice = 1, 20*time.Millisecond
	}
	if size.rounds < 1 || size.slice <= 0 {
		return fmt.Errorf("-rounds %d -slice %v: both must be positive", size.rounds, size.slice)
	}
	chosen, err := regexp.Compile(*which)
	if err != nil {
		return fmt.Errorf("-sections: %w", err)
	}
	if *draw {
		old, err := readReport(*out)
		if err != nil {
			return err
		}
		return old.write(*out)
	}
	var measured []section
	for _, s := range sections() {
		if chosen.MatchString(s.name) {
			measured = append(measured, s)
		}
	}
	if *list {
		for _, s := range measured {
			fmt.Println(s.name)
			for _, r := range s.rows {
				fmt.Println("\t" + r.name)
			}
		}
		return nil
	}
	if len(measured) == 0 {
		return fmt.Errorf("-sections %s: there is none such; -list prints them", *which)
	}
	report := newReport()
	for _, s := range measured {
		got, err := s.measure(ctx, os.Stderr, size)
		if err != nil {
			return err
		}
		report.Sections = append(report.Sections, got)
	}
	if size.quick {
		fmt.Printf("%d comparisons: each contender admits what it should\n", len(measured))
		return nil
	}
	if *out != "" {
		return report.write(*out)
	}
	return report.table(os.Stdout)
}
