package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redisurl"
)

type whyCommand struct {
	Policy string `arg:"" help:"The policy: its name, or its text in the code, such as \"api: 100/1m\"."`
	Key    string `arg:"" help:"The key that is counted, such as user=7 or ip=203.0.113.7."`

	Redis    string `env:"WEIR_REDIS" default:"redis://127.0.0.1:6379" placeholder:"URL" help:"The URL of Redis, or @FILE, a file with it, if it has a password: everybody on a machine can read flags. Of a Cluster with ?addr=host:port for a further node, of a Sentinel with ?master_name=name."`
	Prefix   string `default:"weir" help:"The prefix of the service's keys; see redisstore.Options."`
	HashKeys string `env:"WEIR_HASH_KEYS" placeholder:"FILE" help:"A file with the secret by which the service hashes its keys, less a newline at its end."`

	File string `placeholder:"FILE" xor:"numbers" help:"A file of policies, whose numbers hold; - is the standard input."`
	App  string `xor:"numbers" help:"The app whose numbers hold, by the record of weir-admin."`
	Tier string `help:"The tier of the request, whose numbers in the file or the record hold."`
	Cost int64  `default:"1" help:"The units of the request."`
	As   string `placeholder:"TEXT" help:"Explain what other numbers would do, such as 200/1m."`
}

// Run explains a key.
func (c *whyCommand) Run(e *environment) error {
	code, set, err := c.numbers(e)
	if err != nil {
		return err
	}
	l, closeClient, err := c.limiter(code, set)
	if err != nil {
		return err
	}
	defer closeClient()
	as, tier := core.Policy{}, ""
	switch {
	case c.As != "":
		as, err = l.Policy().ParseLike(c.As)
	case c.Tier != "" && set.Keys[code.Name()][c.Key] == "":
		if tier = set.Tiers[code.Name()][c.Tier]; tier == "" {
			return fmt.Errorf("the policy %q has no tier %q there; give its text with -as", code.Name(), c.Tier)
		}
		if tier == follow.Unlimited {
			e.printf("the tier %q of %q is unlimited\n", c.Tier, code.Name())
			return nil
		}
		as, err = enforce.FitsTier(l.Policy(), tier)
	}
	if err != nil {
		return err
	}
	var x explain.Explanation
	if as.IsZero() {
		x, err = l.Explain(e.ctx, c.Key, c.Cost)
	} else {
		x, err = l.ExplainAs(e.ctx, as, c.Key, c.Cost)
	}
	if err != nil {
		return err
	}
	if tier != "" {
		x.Numbers = fmt.Sprintf("Tiers[%q][%q]", code.Name(), c.Tier)
	}
	if x.Failure != "" {
		return fmt.Errorf("%s; meanwhile each process of the service decides by \"fail %v\", on counts that only it has", x.Failure, l.Policy().Options().Fail)
	}
	if e.json {
		e.print(x)
	} else {
		e.printf("%s", lines(x.String()))
	}
	return nil
}

// numbers returns the policy as the code has it, and the Set whose numbers hold.
func (c *whyCommand) numbers(e *environment) (code core.Policy, set *follow.Set, err error) {
	d := new(policies.Document)
	var services []string // the texts in the code, as the processes of the app say
	named := policies.CheckName(c.Policy) == nil
	switch {
	case c.File != "":
		d, err = e.document(c.File)
	case c.App != "":
		d, services, err = c.record(e)
	case named:
		err = fmt.Errorf("%q is a name alone; give the text of the policy, as in %q, or its numbers with -app or -file", c.Policy, c.Policy+": 100/1m")
	}
	if err != nil {
		return core.Policy{}, nil, err
	}
	set = d.Set()
	if !named {
		code, err = core.Parse(c.Policy)
		if err == nil && code.Name() == "" {
			code = code.Named("default")
		}
		return code, set, err
	}
	texts := append(services, set.Policies[c.Policy])
	for _, text := range texts {
		if text == "" {
			continue
		}
		if code, err = core.Parse(text); err == nil && code.Name() == "" {
			code = code.Named(c.Policy)
		}
		return code, set, err
	}
	return core.Policy{}, nil, fmt.Errorf("the numbers of %q are those of the code, which is not known here; give the text of the policy in its place, as in %q", c.Policy, c.Policy+": 100/1m")
}

// record returns the document of the app, and the texts that its processes have for the policy in their code.
func (c *whyCommand) record(e *environment) (*policies.Document, []string, error) {
	client, err := e.client()
	if err != nil {
		return nil, nil, err
	}
	d, err := client.Document(e.ctx, c.App)
	if err != nil {
		return nil, nil, err
	}
	services, err := client.Services(e.ctx, c.App)
	if err != nil {
		return nil, nil, err
	}
	var texts []string
	for _, p := range services.Processes {
		for _, r := range p.Rules {
			if r.Policy == c.Policy {
				texts = append(texts, r.Code)
			}
		}
	}
	return d, texts, nil
}

// hurry bounds the time that Redis may take: a person waits.
const hurry = 3 * time.Second

// limiter returns a Limiter by these numbers on the Redis of the service, and what closes its client.
func (c *whyCommand) limiter(code core.Policy, set *follow.Set) (*enforce.Limiter, func(), error) {
	store, closeClient, err := openStore(c.Redis, c.Prefix, c.HashKeys)
	if err != nil {
		return nil, nil, err
	}
	source := new(atomic.Pointer[follow.Set])
	source.Store(set)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})) // of numbers that cannot be used
	l, err := enforce.New(store, code, enforce.Options{Source: source, Log: log})
	if err != nil {
		closeClient()
		return nil, nil, errors.New(withoutPackage(err))
	}
	return l, closeClient, nil
}

// openStore returns the store of a service, and what closes its client. secretFile is that of the secret by which the
// service hashes its keys, or "".
func openStore(location, prefix, secretFile string) (*redisstore.Store, func(), error) {
	o := redisstore.Options{Prefix: prefix, DenyCache: -1, Deadline: hurry}
	if secretFile != "" {
		secret, err := os.ReadFile(secretFile)
		if err != nil {
			return nil, nil, fmt.Errorf("the secret: %w", err)
		}
		o.HashKeys = bytes.TrimSuffix(bytes.TrimSuffix(secret, []byte("\n")), []byte("\r"))
	}
	rdb, err := redisurl.Connect(location, true)
	if err != nil {
		return nil, nil, err
	}
	closeClient := func() { _ = rdb.Close() }
	store, err := redisstore.New(rdb, o)
	if err != nil {
		closeClient()
		return nil, nil, err
	}
	return store, closeClient, nil
}
