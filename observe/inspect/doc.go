// Package inspect shows what an [observe.Observer] knows, as a page for people at 3 a.m.: as HTML, as text for curl, and
// as JSON.
//
//	o, err := observe.New(observe.Options{})
//	...
//	go http.ListenAndServe("127.0.0.1:6060", inspect.Handler(o, inspect.Options{}))
//
// The page is for this machine alone unless Options.Allow says otherwise, because it shows who is limited. It has no
// script, and uses the standard library alone.
package inspect
