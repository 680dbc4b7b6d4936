package rlsenv

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reader reads variables, and notes what is wrong. It takes the forms that envconfig takes, with which envoyproxy/ratelimit
// reads them.
type reader struct {
	lookup   func(string) (string, bool)
	asked    map[string]bool // the names of all variables that were asked for
	mistakes []error
	unused   []string
}

// wrong notes a mistake. A value that may hold a password is given as "".
func (r *reader) wrong(name, value, want string) {
	if value == "" {
		r.mistakes = append(r.mistakes, fmt.Errorf("%s: give %s", name, want))
		return
	}
	r.mistakes = append(r.mistakes, fmt.Errorf("%s is %.100q; give %s", name, value, want))
}

func (r *reader) set(name string) bool {
	r.asked[name] = true
	_, set := r.lookup(name)
	return set
}

func (r *reader) text(name, otherwise string) string {
	r.asked[name] = true
	if value, set := r.lookup(name); set {
		return value
	}
	return otherwise
}

// read reads a value by a function that returns false for one that is none.
func read[T any](r *reader, name string, otherwise T, want string, parse func(string) (T, bool)) T {
	r.asked[name] = true
	text, set := r.lookup(name)
	if !set {
		return otherwise
	}
	value, ok := parse(text)
	if !ok {
		if text == "" {
			want += ", or leave it out: it is empty"
		}
		r.wrong(name, text, want)
		return otherwise
	}
	return value
}

func (r *reader) flag(name string, otherwise bool) bool {
	return read(r, name, otherwise, "true or false", func(text string) (bool, bool) {
		value, err := strconv.ParseBool(text)
		return value, err == nil
	})
}

func (r *reader) number(name string, otherwise, least, most int) int {
	return read(r, name, otherwise, fmt.Sprintf("a number from %d to %d", least, most), func(text string) (int, bool) {
		value, err := strconv.ParseInt(text, 0, 64)
		return int(value), err == nil && int64(least) <= value && value <= int64(most)
	})
}

func (r *reader) fraction(name string, otherwise, most float64) float64 {
	return read(r, name, otherwise, fmt.Sprintf("a number from 0 to %v", most), func(text string) (float64, bool) {
		value, err := strconv.ParseFloat(text, 64)
		return value, err == nil && 0 <= value && value <= most
	})
}

func (r *reader) duration(name string, otherwise, least time.Duration) time.Duration {
	return read(r, name, otherwise, `a time of at least `+least.String()+`, such as "10s"`, func(text string) (time.Duration, bool) {
		value, err := time.ParseDuration(text)
		return value, err == nil && value >= least
	})
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (r *reader) header(name, otherwise string) string {
	return read(r, name, otherwise, "the name of a header", func(text string) (string, bool) {
		return text, headerName.MatchString(text)
	})
}

// pairs reads a list such as "a=b,c=d". Its values may be secrets.
func (r *reader) pairs(name, separator string) map[string]string {
	pairs := map[string]string{}
	for i, pair := range list(r.text(name, "")) {
		key, value, ok := strings.Cut(pair, separator)
		if key = strings.TrimSpace(key); !ok || key == "" {
			r.wrong(name, "", fmt.Sprintf(`pairs such as "a%sb,c%sd": number %d is none`, separator, separator, i+1))
			continue
		}
		pairs[key] = value
	}
	return pairs
}

// list splits at commas.
func list(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// address reads the host and the port of an address.
func (r *reader) address(host, port string, otherwise int) Address {
	const greatest = 65_535
	return Address{"tcp", net.JoinHostPort(r.text(host, "0.0.0.0"), strconv.Itoa(r.number(port, otherwise, 0, greatest)))}
}

// names returns the names of all variables that were asked for.
func (r *reader) names() []string { return slices.Sorted(maps.Keys(r.asked)) }
