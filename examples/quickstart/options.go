package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/core"
)

// options are the command line, checked.
type options struct {
	framework, addr string
	servers         []string // of Redis; none: count in the process
	policy          core.Policy
	demo            bool
}

func parse(args []string) (options, error) {
	var o options
	var servers, policy string
	flags := flag.NewFlagSet("quickstart", flag.ExitOnError)
	flags.StringVar(&o.framework, "framework", "nethttp", "`name` of the framework: "+strings.Join(names(), ", "))
	flags.StringVar(&o.addr, "addr", "127.0.0.1:8080", "`host:port` to listen on")
	flags.StringVar(&servers, "redis", "", "`host:port[,host:port...]` of Redis, several for a cluster; none: count in the process")
	flags.StringVar(&policy, "policy", "5/10s", "the `limits` on every route, such as \"20/1s, 1000/1h; fail open\"; see Policies in README.md")
	flags.BoolVar(&o.demo, "demo", false, "start every framework, send each a burst, print what came back, and exit")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; limits with spaces need quotes", flags.Arg(0))
	}
	var unused error
	flags.Visit(func(f *flag.Flag) {
		if o.demo && (f.Name == "framework" || f.Name == "addr") {
			unused = errors.Join(unused, fmt.Errorf("-%s: -demo starts every framework on a port of its own; leave one of the two out", f.Name))
		}
	})
	if unused != nil {
		return o, unused
	}
	if !slices.Contains(names(), o.framework) {
		return o, fmt.Errorf("-framework %q: give one of %s", o.framework, strings.Join(names(), ", "))
	}
	o.addr = strings.TrimSpace(o.addr)
	if _, err := checkAddress(o.addr); err != nil {
		return o, fmt.Errorf("-addr %q: give host:port, such as 127.0.0.1:8080", o.addr)
	}
	if servers = strings.TrimSpace(servers); servers != "" {
		for server := range strings.SplitSeq(servers, ",") {
			server = strings.TrimSpace(server)
			if host, err := checkAddress(server); err != nil || host == "" {
				return o, fmt.Errorf("-redis %q: give host:port, such as 127.0.0.1:6379", server)
			}
			o.servers = append(o.servers, server)
		}
	}
	var err error
	if o.policy, err = core.Parse(policy); err != nil {
		return o, fmt.Errorf("-policy: %w", err)
	}
	if o.policy.Name() == "login" {
		return o, fmt.Errorf("-policy: the name %q is taken by POST /login; choose another", o.policy.Name())
	}
	return o, nil
}

// checkAddress takes host:port apart. net and go-redis would take less and fail
// later, in their own words.
func checkAddress(text string) (host string, err error) {
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return host, err
}
