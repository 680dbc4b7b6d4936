package doccheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tasks names, for each thing that a program wants of a limiter, the example that shows it.
var tasks = map[string]struct{ file, example string }{
	"a limit of one route":            {"nethttp/example_test.go", "ExampleLimit_annotation"},
	"a table of routes":               {"nethttp/recipes_test.go", "ExampleLimit_table"},
	"tiers":                           {"nethttp/recipes_test.go", "ExampleLimit_tiers"},
	"a queue":                         {"nethttp/recipes_test.go", "ExampleLimit_queue"},
	"a poorer answer over the limit":  {"core/guard/handlers_example_test.go", "ExampleDegrade"},
	"a circuit breaker":               {"core/guard/handlers_example_test.go", "ExampleBreak"},
	"tokens of a language model":      {"nethttp/costs_example_test.go", "ExampleLimit_tokens"},
	"failed logins":                   {"nethttp/costs_example_test.go", "ExampleLimit_failedLogins"},
	"requests that are exempted":      {"nethttp/recipes_test.go", "ExampleLimit_skip"},
	"CORS":                            {"nethttp/recipes_test.go", "ExampleLimit_cors"},
	"counters of a metric":            {"nethttp/recipes_test.go", "ExampleLimit_metrics"},
	"an answer of the program's own":  {"nethttp/example_test.go", "ExampleHandle"},
	"numbers that change":             {"core/guard/example_test.go", "ExampleSource"},
	"a careful roll-out":              {"nethttp/recipes_test.go", "ExampleLimit_rollOut"},
	"what is left, shown on a page":   {"nethttp/recipes_test.go", "ExampleLimit_left"},
	"routes of a router of its own":   {"nethttp/recipes_test.go", "ExampleRouter_chi"},
	"warnings when the program start": {"core/guard/example_test.go", "ExampleGuard_Lint"},
}

// mostLines is the most lines of a program that a task may take, besides those that it would have without weir.
const mostLines = 10

// Each task has an example, which go test runs, and takes few lines.
func TestTasksAreShort(t *testing.T) {
	t.Parallel()
	for task, where := range tasks {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(root, where.file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(file.Decls, func(d ast.Decl) bool {
			f, ok := d.(*ast.FuncDecl)
			return ok && f.Name.Name == where.example
		})
		if at < 0 {
			t.Errorf("%s: there is no %s in %s", task, where.example, where.file)
			continue
		}
		if lines := linesOfWeir(fset, file, file.Decls[at]); lines < 1 || lines > mostLines {
			t.Errorf("%s: %s has %d lines of weir; a task takes 1 to %d", task, where.example, lines, mostLines)
		}
	}
}

// linesOfWeir counts the lines of f on which there are calls and values of weir's packages, with all that is within
// them.
func linesOfWeir(fset *token.FileSet, file *ast.File, f ast.Decl) int {
	weir := map[string]bool{}
	for _, s := range file.Imports {
		if path := strings.Trim(s.Path.Value, `"`); strings.HasPrefix(path, module+"/") {
			weir[path[strings.LastIndex(path, "/")+1:]] = true
		}
	}
	isWeir := func(e ast.Expr) bool {
		s, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		id, ok := s.X.(*ast.Ident)
		return ok && weir[id.Name]
	}
	lines := map[int]bool{}
	count := func(n ast.Node) {
		for line := fset.Position(n.Pos()).Line; line <= fset.Position(n.End()).Line; line++ {
			lines[line] = true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		var e ast.Expr
		switch n := n.(type) {
		case *ast.CallExpr:
			e = n.Fun
		case *ast.CompositeLit:
			e = n.Type
		case *ast.SelectorExpr:
			e = n
		}
		if e == nil || !isWeir(e) {
			return true
		}
		count(n)
		return false
	})
	return len(lines)
}
