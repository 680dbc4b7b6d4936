// Package filesource brings the policies of a program from a file of YAML, and follows the file while the program runs:
//
//	file, err := filesource.New("policies.yaml", filesource.Options{})
//	...
//	g, err := guard.New(guard.Config{Rule: rule, Source: file})
//
// The file is a [policies.Document]:
//
//	format: 1
//	policies:
//	  api:
//	    text: 200/1m; shadow
//	    tiers:
//	      pro: 5000/1m
//	    keys:
//	      user=7: blocked
//
// Every value is a text but format, generation and revision. What YAML would take for a number or a date must stand in
// quotes, so that 010 is not 8. Anchors, aliases, merges, tags and a second document are mistakes. A file with mistakes
// is refused as a whole, with all of them, each with its line and column; the policies from before hold, and
// [Source.Status] returns a [Status] with the reason. A file has at most [MaxSize] bytes and [MaxPolicies] policies.
package filesource
