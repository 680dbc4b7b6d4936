// Command mutants breaks the library on purpose and shows that the soak notices it. It needs what the soak needs, and
// git to apply patches:
//
//	go run ./soak/mutants                  # each mutant in turn, which takes some minutes
//	go run ./soak/mutants -run hand-back   # those whose names match
//
// A mutant is a patch beside this file. It begins with what it breaks, and with the checks of the soak of which one has
// to notice it. Each is applied to a copy of the library, and the soak of that copy has to end with status 1 because of
// such a check. The status of this command is 1 if one does not.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	run := flag.String("run", "", "only the mutants whose names match this regular expression")
	duration := flag.Duration("duration", 3*time.Minute, "for how long a soak may go on without noticing")
	seed := flag.Uint64("seed", 1, "which faults the soak brings")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // it is the program's
	err := all(ctx, *run, *duration, *seed)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// all runs the mutants whose names match pattern.
func all(ctx context.Context, pattern string, duration time.Duration, seed uint64) error {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("mutants: -run %q: %w", pattern, err)
	}
	mutants, err := read()
	if err != nil {
		return err
	}
	n, missed := 0, []string(nil)
	for _, m := range mutants {
		if !wanted.MatchString(m.name) {
			continue
		}
		n++
		start := time.Now()
		check, err := m.soak(ctx, duration, seed)
		switch {
		case err != nil:
			return fmt.Errorf("mutants: %s: %w", m.name, err)
		case slices.Contains(m.checks, check):
			fmt.Printf("%-28s noticed by %q after %v: %s\n", m.name, check, time.Since(start).Round(time.Second), m.what)
		default:
			fmt.Printf("%-28s NOT NOTICED by %q, but by %q: %s\n", m.name, m.checks, check, m.what)
			missed = append(missed, m.name)
		}
	}
	switch {
	case n == 0:
		return fmt.Errorf("mutants: no mutant's name matches -run %q", pattern)
	case len(missed) > 0:
		return fmt.Errorf("mutants: %d of %d were not noticed: %s", len(missed), n, strings.Join(missed, ", "))
	}
	fmt.Printf("%d mutants, all noticed\n", n)
	return nil
}

// soak runs the soak of the mutant, and returns the check that noticed it first, or "" if none did.
func (m mutant) soak(ctx context.Context, duration time.Duration, seed uint64) (check string, err error) {
	dir, err := os.MkdirTemp("", "weir-mutant-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := m.breed(ctx, dir); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "soak.program")
	if out, err := command(ctx, filepath.Join(dir, "bench"), "go", "build", "-trimpath", "-o", program, "./soak").CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	soak := command(ctx, dir, program, "-first", "-duration", duration.String(), "-seed", fmt.Sprint(seed))
	soak.Stderr = os.Stderr
	out, err := soak.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := soak.Start(); err != nil {
		return "", err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if check == "" {
			check = checkOf(lines.Text())
		}
	}
	err = soak.Wait()
	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() == 1 && check != "" {
		err = nil
	}
	return check, errors.Join(err, ctx.Err())
}

// broken is a line of the soak about a check that has failed.
var broken = regexp.MustCompile(`^BROKEN: after fault \d+: (?:process \d+: )?([a-z]+): `)

// checkOf returns the check that failed if a line of the soak is about one, else "".
func checkOf(line string) string {
	if found := broken.FindStringSubmatch(line); found != nil {
		return found[1]
	}
	return ""
}

func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the arguments are this program's
	cmd.Dir = dir
	return cmd
}
