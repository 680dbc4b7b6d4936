package gateway

import (
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/nethttp"
)

// checkRules reports the rules of g that cannot work behind a gateway.
func checkRules(g *guard.Guard, o *Options, wrong func(format string, args ...any)) {
	reported := map[string]bool{} // a rule for every request stands in the list of each route
	for _, rule := range g.Rules(nil) {
		if reported[rule.Place] {
			continue
		}
		reported[rule.Place] = true
		cannot := func(format string, args ...any) {
			wrong("%s, %q, %s", rule.Place, rule.Policy, fmt.Sprintf(format, args...))
		}
		if rule.Needs.Permits {
			cannot("holds permits until the request is over, which no gateway reports; leave \"concurrent\" out")
		}
		if rule.Needs.Settlement {
			cannot("has a Settle or an After, which is called when the request is over, and no gateway reports that; use Cost")
		}
		if rule.Needs.Degrading {
			cannot("lets requests go on by Degrade, and the handler of the request is behind the gateway; use Reject")
		}
		if rule.Needs.Native {
			cannot("has an over-limit handler of a framework, and none is here; use Reject or HandlerFunc")
		}
		if rule.Needs.ContentLength && o.Length == "" {
			cannot("has a Cost, and the gateway does not send the length of a body; name the header that it sends it in, as Options.Length")
		}
		if rule.Needs.Waiting {
			if longest := longestWait(rule); longest > o.MaxWait {
				cannot("lets requests wait for up to %s, and Options.MaxWait is %s; give a shorter wait, or a MaxWait for which the gateway waits", longest, o.MaxWait)
			}
		}
	}
}

// longestWait returns the longest time for which a rule may let a request wait, whatever its tier or key.
func longestWait(rule guard.RuleInfo) (longest time.Duration) {
	texts := []string{rule.Policy}
	for _, text := range rule.Tiers {
		texts = append(texts, text)
	}
	for _, text := range rule.Keys {
		texts = append(texts, text)
	}
	for _, text := range texts {
		p, err := core.Parse(text)
		if err != nil { // "unlimited" and "blocked", which wait for nothing
			continue
		}
		longest = max(longest, p.Options().Wait)
		for _, l := range p.Limits() {
			if l.Algorithm == core.LeakyBucket { // it waits until all before it have left
				hi, lo := bits.Mul64(uint64(l.Burst-1), uint64(l.Period)) //nolint:gosec // neither is negative
				wait, _ := bits.Div64(hi, lo, uint64(l.Rate))             //nolint:gosec // core bounds it by 71 years
				longest = max(longest, time.Duration(wait))               //nolint:gosec // as said
			}
		}
	}
	return longest
}

// routesOf returns a Router that finds the keys of the guard's Routes as the patterns of a ServeMux.
func routesOf(g *guard.Guard, wrong func(format string, args ...any)) nethttp.Router {
	mux := http.NewServeMux()
	known := map[string]bool{}
	for _, rule := range g.Rules(nil) {
		pattern := rule.Route
		if prefix, all := strings.CutSuffix(pattern, "/*"); all { // all patterns below it, of which prefix+"/" is one
			pattern = prefix + "/"
		}
		if pattern == "" || known[pattern] {
			continue
		}
		known[pattern] = true
		if strings.Contains(pattern, "/:") || strings.Contains(pattern, "/*") {
			wrong("Routes[%q] is the pattern of another router; write it as http.ServeMux has it, such as \"/items/{id}\", or give Options.Find", rule.Route)
			continue
		}
		if err := register(mux, pattern); err != nil {
			wrong("Routes[%q]: %v; write it as http.ServeMux has it, or give Options.Find", rule.Route, err)
		}
	}
	return nethttp.Mux(mux)
}

// register adds a pattern to a mux, which panics if it is none, or in conflict with another one.
func register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New(strings.ReplaceAll(fmt.Sprint(p), "\n", " "))
		}
	}()
	mux.HandleFunc(pattern, admit)
	return nil
}
