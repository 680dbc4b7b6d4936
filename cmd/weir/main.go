// Weir is the command for the policies of a fleet. It checks files of policies, explains what a text admits and why a key
// is refused, shows who is refused most, and asks a weir-admin server for what holds and for changes:
//
//	weir lint policies.yaml
//	weir explain "20/1s, 1000/1d"
//	weir why "api: 100/1m" user=7
//	weir top -redis redis://127.0.0.1:6379 api
//	weir gateway gateway.yaml
//	weir rls
//	weir apply -dry-run policies.yaml
//	weir services pay
//
// The exit status is 0, or 1 after an error, 2 if -dry-run has found differences, and 3 if an app has an alarm, which
// means that nothing more is published for it until somebody has looked at it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weir-go/weir/internal/adminapi"
)

// command is the command line.
type command struct {
	JSON      bool   `name:"json" help:"Write JSON."`
	Server    string `env:"WEIR_SERVER" default:"http://127.0.0.1:7070" help:"The address of weir-admin."`
	TokenFile string `env:"WEIR_TOKEN_FILE" help:"A file with the token for weir-admin."`

	Lint     lintCommand     `cmd:"" help:"Check files of policies, in YAML or JSON."`
	Explain  explainCommand  `cmd:"" help:"Explain what a policy's text admits, and with a second one, what a change to it does."`
	Why      whyCommand      `cmd:"" help:"Explain what a request of a key would get now, by what Redis has counted, and when the next are admitted. It takes nothing."`
	Top      topCommand      `cmd:"" help:"Show which keys the processes of a fleet have refused most, of programs that share that: Observer.Share."`
	Apply    applyCommand    `cmd:"" help:"Make the policies of an app those of a file, all in one change, and show the differences."`
	Gateway  gatewayCommand  `cmd:"" help:"Answer nginx, Caddy, Traefik or Envoy whether a request may pass, by the rules of a file. SIGHUP and a change of the file load it again."`
	RLS      rlsCommand      `cmd:"" name:"rls" help:"Answer Envoy in the place of envoyproxy/ratelimit, by the same environment and files."`
	Get      getCommand      `cmd:"" help:"Show apps, the document of an app, or one policy."`
	History  historyCommand  `cmd:"" help:"Show the versions of a policy, the latest first."`
	Rollback rollbackCommand `cmd:"" help:"Make an earlier version of a policy hold again."`
	Services servicesCommand `cmd:"" help:"Show which processes obey what."`
	Adopt    adoptCommand    `cmd:"" help:"Make the record's document of an app later than all that its services have seen, after a backup was restored."`
}

// environment has the input and output of a command, and the flags that all commands have.
type environment struct {
	ctx    context.Context //nolint:containedctx // of the whole program
	in     io.Reader
	out    io.Writer
	json   bool
	server string
	token  string // the path of its file
}

// The exit statuses.
const (
	failed    = 1
	different = 2
	alarmed   = 3
)

// status is an error that says nothing: the output did.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // the program's own
	code := run(ctx, arguments(os.Args))
	stop()
	os.Exit(code)
}

// arguments returns those of the command line. A program that is named as envoyproxy/ratelimit takes its place.
func arguments(line []string) []string {
	if filepath.Base(line[0]) == "ratelimit" {
		return append([]string{"rls"}, line[1:]...)
	}
	return line[1:]
}

// run runs the command and returns the exit status.
func run(ctx context.Context, args []string) int {
	var c command
	parser := kong.Must(&c, kong.Name("weir"), kong.UsageOnError(),
		kong.Description("Policies of a fleet: check them, explain them, change them, and see who obeys them."))
	parsed, err := parser.Parse(twoDashes(args))
	if err != nil {
		fmt.Fprintf(os.Stderr, "weir: %v; weir -help lists the commands\n", err)
		return failed
	}
	e := &environment{ctx: ctx, in: os.Stdin, out: os.Stdout, json: c.JSON, server: c.Server, token: c.TokenFile}
	err = parsed.Run(e)
	var silent status
	switch {
	case err == nil:
		return 0
	case errors.As(err, &silent):
		return int(silent)
	case e.json:
		e.print(struct {
			Error   string            `json:"error"`
			Problem *adminapi.Problem `json:"problem,omitempty"`
		}{err.Error(), problemIn(err)})
	default:
		fmt.Fprintf(os.Stderr, "weir: %s\n", lines(err.Error()))
	}
	return failed
}

func problemIn(err error) *adminapi.Problem {
	var p *adminapi.Problem
	errors.As(err, &p)
	return p
}

// longFlag is a flag as Go's programs write it.
var longFlag = regexp.MustCompile(`^-[a-z][a-z-]+(?:=|$)`)

// twoDashes writes "-json" as "--json", so that both may be given, as with Go's own flags.
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

// patience bounds a request: a change waits for a second until it is published, and for a database that is busy.
const patience = time.Minute

// client returns a client of the server.
func (e *environment) client() (*adminapi.Client, error) {
	if u, err := url.Parse(e.server); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the server is %q; give -server, or WEIR_SERVER, a URL such as http://127.0.0.1:7070", e.server)
	}
	if e.token == "" {
		return nil, errors.New("no token; give -token-file, or WEIR_TOKEN_FILE, a file with the token for " + e.server)
	}
	data, err := os.ReadFile(e.token)
	if err != nil {
		return nil, fmt.Errorf("the token: %w", err)
	}
	token := ""
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			token = line
			break
		}
	}
	if token == "" {
		return nil, fmt.Errorf("the token: %s is empty; write the token into it", e.token)
	}
	return &adminapi.Client{URL: e.server, Token: token, HTTP: &http.Client{Timeout: patience}}, nil
}
