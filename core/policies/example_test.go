package policies_test

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
)

func ExampleDecode() {
	d, err := policies.Decode([]byte(`{
  "format": 1,
  "app": "pay",
  "policies": {
    "api": {"text": "200/1m; shadow", "tiers": {"pro": "5000/1m"}, "keys": {"user=7": "blocked"}}
  }
}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.App, d.Policies["api"].Text, d.Policies["api"].Keys)

	_, err = policies.Decode([]byte(`{"format": 1, "policies": {"api": {"text": "200/1min"}, "login": {"limit": 5}}}`))
	var mistakes policies.Mistakes
	if errors.As(err, &mistakes) {
		for _, m := range mistakes {
			fmt.Println(m.Line, m.Column, m.Path)
		}
	}
	// Output:
	// pay 200/1m; shadow map[user=7:blocked]
	// 1 44 policies.api.text
	// 1 67 policies.login.limit
}

func ExampleDocument_Encode() {
	d := policies.Document{
		App:      "pay",
		Version:  policies.Version{Generation: 1, Revision: 17},
		Policies: map[string]policies.Policy{"api": {Text: "200/1m"}, "login": {}},
	}
	if err := d.Check(); err != nil { // the texts, which Encode does not read
		fmt.Println(err)
		return
	}
	data, err := d.Encode()
	fmt.Println(string(data), err)
	fmt.Println(d.Set().Revision)
	// Output:
	// {"format":1,"app":"pay","generation":1,"revision":17,"policies":{"api":{"text":"200/1m"},"login":{}}} <nil>
	// 1.17
}

func ExampleDecodePolicy() {
	p, err := policies.DecodePolicy([]byte(`{"text": "200/1m", "apps": ["shop", "billing"]}`), "api")
	fmt.Println(p.Text, p.Apps, err)
	// Output: 200/1m [billing shop] <nil>
}

// A file on the machine goes before what the fleet says, for the day on which the fleet cannot be asked.
func ExampleLayers() {
	file, fleet := new(atomic.Pointer[follow.Set]), new(atomic.Pointer[follow.Set]) // in a program, of filesource and redissource
	source := policies.Layers(file, fleet)

	fleet.Store(&follow.Set{Revision: "1.17", Policies: map[string]string{"api": "200/1m", "login": "5/1m"}})
	fmt.Println(source.Load().Revision, source.Load().Policies)
	file.Store(&follow.Set{Revision: "cafe0123", Policies: map[string]string{"api": "50/1m"}})
	fmt.Println(source.Load().Revision, source.Load().Policies)
	// Output:
	// 1.17 map[api:200/1m login:5/1m]
	// cafe0123+1.17 map[api:50/1m login:5/1m]
}

// A reader of another format, such as TOML, makes nodes, and Build finds the mistakes.
func ExampleBuild() {
	text := func(s string, line int) *policies.Node {
		return &policies.Node{Kind: policies.Text, Text: s, Line: line, Column: 1}
	}
	policy := &policies.Node{Kind: policies.Object, Members: []policies.Member{{Name: "text", Value: text("5 per minute", 3)}}}
	_, err := policies.Build(&policies.Node{Kind: policies.Object, Members: []policies.Member{
		{Name: "format", Value: &policies.Node{Kind: policies.Number, Text: "1"}},
		{Name: "policies", Value: &policies.Node{Kind: policies.Object, Members: []policies.Member{{Name: "login", Value: policy}}}},
	}}, policies.MaxPolicies)
	fmt.Println(err)
	// Output: 3:1: policies.login.text: "5 per minute": at offset 2, found "per": expected "/" and a period, as in "100/1m", or "concurrent"
}
