// Command weir-admin is the record of a fleet's policies: a database with an API and a page, published in Redis.
//
//	weir-admin demo
//	weir-admin -db weir.db -redis redis://127.0.0.1:6379
//
// The first shows it with nothing installed; the second serves, on this machine alone and without TLS: for others put a
// proxy with TLS before it. Several may serve one database. weir-admin -help lists the other commands.
//
// The exit status is 0, or 1 after an error, and 2 if import has found what it does not know the
// meaning of, or audit verify what is not as it was written.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/alecthomas/kong"
)

// command is the command line.
type command struct {
	Serve   serveCommand   `cmd:"" default:"withargs" help:"Serve the API and the page, and publish in Redis. The default."`
	Demo    demoCommand    `cmd:"" help:"Show it with nothing installed: made-up services in the process, and a database that is gone at the end."`
	Migrate migrateCommand `cmd:"" help:"Make the tables of the database what this version needs, as serve does when it starts."`
	Link    linkCommand    `cmd:"" help:"Make a link by which a person logs in once, where there is no identity provider, or none that answers."`
	Token   tokenCommand   `cmd:"" help:"Make a token for a program, and print it."`
	Import  importCommand  `cmd:"" help:"Plan the policies of an older limiter's table, rate_limiter_info in MySQL, and with -apply write them."`
	Audit   auditCommand   `cmd:"" help:"Look at the audit."`
	Adopt   adoptCommand   `cmd:"" help:"Make the record's document of an app later than all that its services have seen, after a backup was restored."`
	Backup  backupCommand  `cmd:"" help:"Copy the database to a new file, while others use it."`
}

// environment has the outputs of a command: results go to out, and everything else to err.
type environment struct {
	ctx      context.Context //nolint:containedctx // of the whole program
	out, err io.Writer
}

// The exit statuses.
const (
	failed = 1
	found  = 2
)

// status is an error that says nothing: the output did.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // the program's own
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	var silent status
	switch {
	case errors.As(err, &silent):
		os.Exit(int(silent))
	case err != nil:
		fmt.Fprintln(os.Stderr, "weir-admin:", err)
		os.Exit(failed)
	}
}

// run runs the command.
func run(ctx context.Context, args []string, out, err io.Writer) error {
	var c command
	helped := false
	parser := kong.Must(&c, kong.Name("weir-admin"), kong.Writers(out, out), kong.Exit(func(int) { helped = true }),
		kong.Description("The record of a fleet's policies. Secrets are in files: a flag can be read by all on this machine."))
	parsed, mistake := parser.Parse(twoDashes(args))
	switch {
	case helped:
		return nil
	case mistake != nil:
		return fmt.Errorf("%w; weir-admin -help lists the commands", mistake)
	}
	return parsed.Run(&environment{ctx: ctx, out: out, err: err})
}

// longFlag is a flag as Go's programs write it.
var longFlag = regexp.MustCompile(`^-[a-z][a-z-]+(?:=|$)`)

// twoDashes writes "-db" as "--db", so that both may be given, as with Go's own flags.
func twoDashes(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if arg == "--" {
			copy(out[i:], args[i:])
			break
		}
		if longFlag.MatchString(arg) {
			arg = "-" + arg
		}
		out[i] = arg
	}
	return out
}
