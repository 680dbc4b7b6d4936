package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/observe"
)

type topCommand struct {
	Policy string `arg:"" help:"The name of the policy."`

	Minutes int    `default:"10" help:"The minutes to look back, up to 119."`
	Limit   int    `default:"20" help:"The most keys to show."`
	Prefix  string `default:"weir" help:"The prefix of the service's keys; see redisstore.Options."`

	Redis    string `env:"WEIR_REDIS" placeholder:"URL" help:"The URL of Redis, as of weir why. Without it, weir-admin is asked."`
	HashKeys string `env:"WEIR_HASH_KEYS" placeholder:"FILE" help:"A file with the secret by which the service hashes its keys, for -find."`
	Find     string `placeholder:"KEY" help:"Mark this key, such as user=7, also where keys are hashed."`
}

// The bounds of what Redis is asked for.
const (
	maxMinutes = 119 // boards are kept for two hours
	maxCallers = 1000
)

// Run shows the worst callers of a fleet.
func (c *topCommand) Run(e *environment) error {
	if c.Minutes < 0 || c.Minutes > maxMinutes || c.Limit < 1 || c.Limit > maxCallers {
		return fmt.Errorf("-minutes is %d and -limit %d; give 0 to %d minutes, and 1 to %d keys", c.Minutes, c.Limit, maxMinutes, maxCallers)
	}
	top, find, err := c.ask(e)
	switch {
	case err != nil:
		return err
	case e.json:
		e.print(top)
		return nil
	case len(top.Callers) == 0 && top.Rest == 0:
		e.printf("nobody was refused by %s since %s, or no process shares its worst callers: Observer.Share\n",
			shown(c.Policy), top.Since.UTC().Format(time.DateTime))
		return nil
	}
	rows := [][]string{{"key", "at least", "at most", ""}}
	for _, caller := range top.Callers {
		mark := ""
		if find != "" && caller.Key == find {
			mark = "<- " + shown(c.Find)
		}
		rows = append(rows, []string{shown(caller.Key), strconv.FormatUint(caller.Least, 10), strconv.FormatUint(caller.Most, 10), mark})
	}
	e.printf("%s since %s, until ten seconds ago\n", shown(c.Policy), top.Since.UTC().Format(time.DateTime))
	e.table(rows)
	e.printf("any other key: at most %d\n", top.Rest)
	return nil
}

// ask asks Redis, or weir-admin. find is the text that stands for the key to find.
func (c *topCommand) ask(e *environment) (top adminapi.Top, find string, err error) {
	if c.Redis == "" {
		if c.HashKeys != "" {
			return top, "", fmt.Errorf("-hash-keys needs -redis; weir-admin shows keys as the processes have written them")
		}
		client, err := e.client()
		if err != nil {
			return top, "", fmt.Errorf("%w; or give -redis, to read from there", err)
		}
		top, err = client.Top(e.ctx, c.Policy, c.Prefix, c.Minutes, c.Limit)
		return top, c.Find, err
	}
	store, closeClient, err := openStore(c.Redis, c.Prefix, c.HashKeys)
	if err != nil {
		return top, "", err
	}
	defer closeClient()
	ctx, cancel := context.WithTimeout(e.ctx, hurry)
	defer cancel()
	callers, rest, err := observe.FleetWorst(ctx, store, c.Policy, time.Duration(c.Minutes)*time.Minute, c.Limit)
	if err != nil {
		return top, "", err
	}
	return adminapi.TopOf(c.Policy, c.Minutes, callers, rest, time.Now()), store.ScoreKey(c.Find), nil
}
