// Package gatewayfile reads the file of weir gateway.
package gatewayfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/nethttp/gateway"
)

// MaxSize is the most bytes of a file.
const MaxSize = 1 << 20

// File holds the content of a file. Parse returns one; the zero File is of no use.
type File struct {
	// Network is "tcp" or "unix", and Address the address to listen on.
	Network, Address string
	// Redis is the URL of the store, or "@" and the name of a file with it; "" means that this process counts.
	Redis string
	// Options describe the gateway, without its Log.
	Options gateway.Options
	// Guard has the rules, without a Store and a Log.
	Guard guard.Config

	lines map[string]int // of places by which guard.New and gateway.New name what is wrong, such as "Rules[0]"
}

// Mistake is something in a file that cannot be used.
type Mistake struct { //nolint:errname // a value in a list, with a place
	Line int // from 1, or 0 for the file itself
	Err  error
}

// Error implements error: "line 3: style: ...".
func (m Mistake) Error() string {
	if m.Line == 0 {
		return m.Err.Error()
	}
	return "line " + strconv.Itoa(m.Line) + ": " + m.Err.Error()
}

// Unwrap returns m.Err.
func (m Mistake) Unwrap() error { return m.Err }

// Parse reads a file in YAML. Nothing in it is ignored: a field that is unknown or stands twice is a mistake. The error
// joins all mistakes, each a [Mistake] with its line.
func Parse(data []byte) (*File, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("the file has more than %d bytes", MaxSize)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, another yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty; give listen, style and rules")
	case err != nil:
		return nil, syntax(err)
	}
	if err := decoder.Decode(&another); err == nil {
		return nil, Mistake{another.Line, errors.New("a second document begins here; remove it")}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntax(err)
	}
	r := reader{file: &File{lines: map[string]int{}}}
	r.read(document.Content[0])
	if len(r.mistakes) > 0 {
		slices.SortStableFunc(r.mistakes, func(a, b Mistake) int { return cmp.Compare(a.Line, b.Line) })
		all := make([]error, len(r.mistakes))
		for i, m := range r.mistakes {
			all[i] = m
		}
		return nil, errors.Join(all...)
	}
	return r.file, nil
}

// syntax returns an error of the parser with its line.
func syntax(err error) error {
	m := Mistake{Err: fmt.Errorf("this is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))}
	var rest string
	if n, _ := fmt.Sscanf(err.Error(), "yaml: line %d: %s", &m.Line, &rest); n == 2 {
		_, text, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: line "), ": ")
		m.Err = fmt.Errorf("this is not YAML: %s", text)
	}
	return m
}

// Build returns the handler for the file. complete fills in what a file does not have: the Store and the Log. Mistakes name
// the lines of the rules and networks that they are about. stop ends what the handler has begun.
func (f *File) Build(complete func(*guard.Config, *gateway.Options)) (h http.Handler, stop func() error, err error) {
	config, options := f.Guard, f.Options
	complete(&config, &options)
	g, err := guard.New(config)
	if err != nil {
		return nil, nil, f.located(err)
	}
	if h, err = gateway.New(g, options); err != nil {
		_ = g.Close() // nothing has been asked
		return nil, nil, f.located(err)
	}
	return h, g.Close, nil
}

// located gives each mistake the line of the rule or the network that it names.
func (f *File) located(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range several.Unwrap() {
			all = append(all, f.located(e))
		}
		return errors.Join(all...)
	}
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "guard: "), "gateway: ")
	for place, line := range f.lines {
		if strings.HasPrefix(text, place) {
			return Mistake{line, err}
		}
	}
	return err
}

// reader reads the nodes of a file.
type reader struct {
	file     *File
	mistakes []Mistake
}

func (r *reader) wrong(n *yaml.Node, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{n.Line, fmt.Errorf(format, args...)})
}

// fields calls the function of each field of an object. Those that are unknown or stand twice are mistakes.
func (r *reader) fields(n *yaml.Node, what string, known map[string]func(name string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode || !plain(n) {
		r.wrong(n, "%s is %s; give fields such as \"name: value\"", what, kindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		read := known[name.Value]
		if read == nil {
			read = known[""] // of an object with names of any kind
		}
		switch {
		case name.Kind != yaml.ScalarNode || !plain(name) || name.Tag == "!!merge":
			r.wrong(name, "%s: a name is %s; write it as text, without anchors, tags and merges", what, kindOf(name))
		case read == nil:
			r.wrong(name, "%s: there is no field %q; give %s", what, name.Value, namesOf(known))
		case seen[name.Value]:
			r.wrong(name, "%s: %q stands twice", what, name.Value)
		default:
			read(name.Value, value)
		}
		seen[name.Value] = true
	}
}

func namesOf(known map[string]func(string, *yaml.Node)) string {
	var names []string
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// plain reports whether n is written without what makes one value of another.
func plain(n *yaml.Node) bool {
	return n.Kind != yaml.AliasNode && n.Anchor == "" && n.Style&yaml.TaggedStyle == 0
}

// kindOf describes a node.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Anchor != "" || n.Kind == yaml.AliasNode:
		return "an anchor or an alias"
	case n.Style&yaml.TaggedStyle != 0:
		return fmt.Sprintf("a value with the tag %q", n.Tag)
	case n.Kind == yaml.MappingNode:
		return "an object"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	default:
		return strconv.Quote(n.Value)
	}
}

// text returns the text of a value.
func (r *reader) text(name string, n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || !plain(n) || n.Tag == "!!null" || n.Value == "" {
		r.wrong(n, "%s is %s; give a text", name, kindOf(n))
		return ""
	}
	return n.Value
}

// list returns the values of a list.
func (r *reader) list(name string, n *yaml.Node) []*yaml.Node {
	if n.Kind != yaml.SequenceNode || !plain(n) {
		r.wrong(n, "%s is %s; give a list", name, kindOf(n))
		return nil
	}
	return n.Content
}

// number returns a whole number.
func (r *reader) number(name string, n *yaml.Node) int {
	v, err := strconv.Atoi(r.text(name, n))
	if err != nil || strconv.Itoa(v) != n.Value {
		r.wrong(n, "%s is %s; give a number", name, kindOf(n))
	}
	return v
}

// read reads the whole file.
func (r *reader) read(root *yaml.Node) {
	f := r.file
	var listen, style, rules *yaml.Node
	type fields = map[string]func(name string, value *yaml.Node)
	r.fields(root, "the file", fields{
		"listen": func(name string, n *yaml.Node) { listen = n; r.listen(r.text(name, n), n) },
		"style":  func(name string, n *yaml.Node) { style = n; r.style(r.text(name, n), n) },
		"trust": func(name string, n *yaml.Node) {
			for _, item := range r.list(name, n) {
				p, err := netip.ParsePrefix(r.text(name, item))
				if err != nil {
					r.wrong(item, "trust: %s is no network; give one such as 10.0.0.0/8", kindOf(item))
				}
				f.lines[fmt.Sprintf("Options.Trusted[%d]", len(f.Options.Trusted))] = item.Line
				f.Options.Trusted = append(f.Options.Trusted, p)
			}
		},
		"deny": func(name string, n *yaml.Node) {
			if f.Options.Deny = r.number(name, n); f.Options.Deny != http.StatusForbidden {
				r.wrong(n, "deny is %s; give 403, or leave it out", kindOf(n))
			}
		},
		"redis":  func(name string, n *yaml.Node) { f.Redis = r.text(name, n) },
		"prefix": func(name string, n *yaml.Node) { f.Options.Prefix = r.text(name, n) },
		"hops":   func(name string, n *yaml.Node) { f.Options.Hops = r.number(name, n) },
		"max-wait": func(name string, n *yaml.Node) {
			d, err := time.ParseDuration(r.text(name, n))
			if err != nil || d <= 0 {
				r.wrong(n, "max-wait is %s; give a time such as 500ms", kindOf(n))
			}
			f.Options.MaxWait = d
		},
		"rules": func(name string, n *yaml.Node) {
			rules = n
			for i, item := range r.list(name, n) {
				place := fmt.Sprintf("Rules[%d]", i)
				f.Guard.Rules = append(f.Guard.Rules, r.rule(place, item, false))
			}
		},
		"routes": func(_ string, n *yaml.Node) {
			f.Guard.Routes = map[string]guard.Rule{}
			r.fields(n, "routes", fields{"": func(route string, n *yaml.Node) {
				f.Guard.Routes[route] = r.rule(fmt.Sprintf("Routes[%q]", route), n, true)
			}})
		},
	})
	if listen == nil {
		r.wrong(root, "listen is missing; give an address such as 127.0.0.1:9090, or unix:/run/weir/gateway.sock")
	}
	if style == nil {
		r.wrong(root, "style is missing; give nginx, forwarded or envoy")
	}
	if f.Options.Style == gateway.Envoy && f.Options.Prefix == "" {
		r.wrong(root, "prefix is missing; give the path_prefix of Envoy, so that /healthz is no path of a client")
	}
	if rules == nil && len(f.Guard.Routes) == 0 {
		r.wrong(root, "rules and routes are missing; give one of them")
	}
	if len(f.Guard.Rules) > 0 {
		f.Guard.Key = f.Guard.Rules[0].Key // for routes that leave theirs out
	}
	if len(f.Options.Trusted) == 0 && listen != nil {
		r.trustItself(listen)
	}
}

// trustItself trusts whoever reaches an address that only this machine reaches.
func (r *reader) trustItself(listen *yaml.Node) {
	o := &r.file.Options
	host, _, _ := net.SplitHostPort(r.file.Address)
	switch addr, _ := netip.ParseAddr(host); {
	case r.file.Network == "unix":
		o.Socket = true
	case host == "localhost" || addr.IsLoopback():
		o.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	case r.file.Network == "tcp":
		r.wrong(listen, "listen is %q, which others than this machine reach, and trust is missing; list the networks of the gateways", r.file.Address)
	}
}

func (r *reader) listen(address string, n *yaml.Node) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok && path != "" {
		r.file.Network, r.file.Address, r.file.Options.Socket = "unix", path, true
		return
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		r.wrong(n, "listen is %s; give an address such as 127.0.0.1:9090, or unix:/run/weir/gateway.sock", kindOf(n))
		return
	}
	r.file.Network, r.file.Address = "tcp", address
}

func (r *reader) style(name string, n *yaml.Node) {
	for s := gateway.Nginx; s <= gateway.Envoy; s++ {
		if s.String() == name {
			r.file.Options.Style = s
			return
		}
	}
	r.wrong(n, "style is %s; give nginx, forwarded or envoy", kindOf(n))
}

// rule reads a rule, in routes or not.
func (r *reader) rule(place string, n *yaml.Node, route bool) (rule guard.Rule) {
	r.file.lines[place] = n.Line
	known := map[string]func(string, *yaml.Node){
		"policy": func(name string, n *yaml.Node) {
			rule.Policy = r.text(name, n)
			if _, err := core.Parse(rule.Policy); err != nil && rule.Policy != "" {
				r.wrong(n, "%w", err)
			}
		},
		"key": func(name string, n *yaml.Node) {
			var err error
			if rule.Key, err = key(r.text(name, n)); err != nil && n.Value != "" {
				r.wrong(n, "%w", err)
			}
		},
	}
	if route {
		known["instead"] = func(name string, n *yaml.Node) {
			if n.Tag != "!!bool" || n.Value != "true" || !plain(n) {
				r.wrong(n, "%s is %s; give true, or leave it out", name, kindOf(n))
			}
			rule.Instead = true
		}
	}
	r.fields(n, place, known)
	if !route && (rule.Policy == "" || rule.Key.String() == "") && n.Kind == yaml.MappingNode {
		r.wrong(n, "%s has no policy or no key; give both, such as \"api: 100/1m\" and ip", place)
	}
	return rule
}
