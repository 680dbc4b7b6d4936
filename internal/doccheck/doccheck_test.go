package doccheck

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// text writes a document in which three single quotes stand for a fence.
func text(s string) string { return strings.ReplaceAll(s, "'''", "```") }

func TestGoodSnippets(t *testing.T) {
	t.Parallel()
	const document = `# A document

'''go
package main

import "fmt"

func main() { fmt.Println("as it stands") }
'''

'''go
func declared(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.URL) }

var key = keyfunc.Join(keyfunc.IP(), keyfunc.Route())
'''

Statements, unused variables, a name from the table:

'''go
mux.Handle("GET /", http.NotFoundHandler())
key, err := keyfunc.IP(), ctx.Err()
var other int
'''

<!-- given: hello http.HandlerFunc, mux map[string]http.Handler -->

'''go
mux["/hello"] = hello
'''

<!-- from: internal/doccheck/doccheck_test.go -->

'''go
import (
"fmt"
	"os"
'''

1. In a list, with imports of its own:

   ~~~go
   import (
       "fmt"
       str "strings"
   )

   fmt.Println(str.ToUpper("x"))
   if time.Now().IsZero() {
       return
   }
   ~~~

'''text
guard :=
'''

'''sh
go test ./...
$ GOFLAGS=-race go test ./internal/...   # and ./nowhere in a comment
cd internal && go test -run '^$' ./doccheck
go test -C internal ./doccheck && go test ./internal/doccheck
'''
`
	for _, problem := range check(t, "GOOD.md", text(document)) {
		t.Error(problem)
	}
}

func TestBadSnippets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, document, want string }{
		{"a type error in a program", "\n'''go\npackage main\n\nfunc main() {\n\tvar n int = \"x\"\n}\n'''\n", "BAD.md:6:14: cannot use"},
		{"a type error in statements", "'''go\nn := 1\nn = \"x\"\n'''\n", "BAD.md:3:5: cannot use"},
		{"a type error after imports", "'''go\nimport \"fmt\"\n\nfmt.Println()\nfmt.No()\n'''\n", "BAD.md:5:5: undefined: fmt.No"},
		{"a type error in declarations", "'''go\ntype t struct{}\n\nvar x t = 1\n'''\n", "BAD.md:4:11: cannot use"},
		{"a name from nowhere", "'''go\nnobody.Knows()\n'''\n", "BAD.md:2:1: undefined: nobody"},
		{"a hint", "'''go\nnobody.Knows()\n'''\n", "<!-- given: name Type -->"},
		{"no such function", "'''go\nk := keyfunc.Nothing()\n'''\n", "BAD.md:2:14: undefined: keyfunc.Nothing"},
		{"no Go", "\n\n'''go\nguard := ...\n'''\n", "BAD.md:4: neither declarations nor statements: "},
		{"no such package", "'''go\nimport _ \"github.com/weir-go/weir/nowhere\"\n'''\n", "github.com/weir-go/weir/nowhere"},
		{"no such path", "'''sh\ngo test ./...\ngo run ./examples/nowhere -demo\n'''\n", "BAD.md:3: go run ./examples/nowhere -demo: there is no such path"},
		{"no such path elsewhere", "'''sh\ngo test -C core ./doccheck\n'''\n", "BAD.md:2: go test -C core ./doccheck: there is no such path"},
		{"no such path after a variable", "'''sh\nX=1 go test ./nowhere/...\n'''\n", "BAD.md:2: X=1 go test ./nowhere/...: there is no such path"},
		{"a quotation that is none", "<!-- from: internal/doccheck/doccheck_test.go -->\n\n'''go\nreturn nowhere(at, all)\n'''\n", "BAD.md:4: these lines do not stand in internal/doccheck/doccheck_test.go"},
		{"a quotation from nowhere", "<!-- from: nowhere.go -->\n'''go\nx := 1\n'''\n", "there is no such file"},
		{"no program", "'''sh\ngo run ./internal\n'''\n", "BAD.md:2: go run ./internal: there are no Go files"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			problems := strings.Join(check(t, "BAD.md", text(c.document)), "\n")
			if !strings.Contains(problems, c.want) {
				t.Errorf("want %q in:\n%s", c.want, problems)
			}
		})
	}
}

// Every snippet of a document is reported, not only the first bad one.
func TestAllBadSnippets(t *testing.T) {
	t.Parallel()
	var document strings.Builder
	for i := range 3 {
		fmt.Fprintf(&document, "'''go\nvar x int = \"%d\"\n'''\n", i)
	}
	problems := strings.Join(check(t, "BAD.md", text(document.String())), "\n")
	for _, want := range []string{"BAD.md:2:", "BAD.md:5:", "BAD.md:8:"} {
		if !strings.Contains(problems, want) {
			t.Errorf("want %q in:\n%s", want, problems)
		}
	}
}

func TestNothingIsLeftInTheTree(t *testing.T) {
	t.Parallel()
	check(t, "GOOD.md", text("'''go\npackage main\n\nfunc main() {}\n'''\n"))
	left, err := filepath.Glob(filepath.Join(root, "*doccheck*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	for _, name := range []string{"GOOD.md", "main", "GOOD_md_line_2"} {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil {
			t.Errorf("left behind: %s", name)
		}
	}
}
