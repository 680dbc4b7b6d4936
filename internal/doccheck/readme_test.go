// Package doccheck holds the documents to what they say: every Go snippet of the README, and of any
// other Markdown file at the root and in docs, compiles, and the paths in its commands exist.
//
// A snippet that begins with a package clause is compiled as it stands. Any other may be
// declarations or statements, with or without imports. Packages it uses are imported by the table
// packages; names it uses and does not declare come from the table given, or from a comment
// before the snippet, which readers do not see, and in which a comma with a space ends a type:
//
//	<!-- given: g *guard.Guard, hello http.HandlerFunc -->
//
// A snippet that stands in a file of the tree, line for line but for the indentation, and is compiled and tested there,
// such as in a module of its own, names it instead:
//
//	<!-- from: recipes/routers_test.go -->
//
// Variables that a snippet declares need not be used. Nothing is written to the tree: the
// compiler sees the snippets through an overlay.
package doccheck

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/weir-go/weir"
)

// packages are the imports that a snippet need not write.
var packages = map[string]string{
	"bufio": "bufio", "bytes": "bytes", "cmp": "cmp", "context": "context", "errors": "errors", "expvar": "expvar",
	"fmt": "fmt", "http": "net/http", "httptest": "net/http/httptest", "io": "io",
	"json": "encoding/json", "log": "log", "net": "net", "netip": "net/netip", "os": "os", "signal": "os/signal", "slog": "log/slog",
	"strconv": "strconv", "strings": "strings", "sync": "sync", "atomic": "sync/atomic", "testing": "testing", "time": "time", "tls": "crypto/tls",

	"core": module + "/core", "enforce": module + "/core/enforce", "stats": module + "/core/stats",
	"explain": module + "/core/explain", "follow": module + "/core/follow", "guard": module + "/core/guard", "keyfunc": module + "/keyfunc",
	"policies": module + "/core/policies", "filesource": module + "/core/policies/filesource", "redissource": module + "/core/policies/redissource",
	"rediscell":  module + "/core/rediscell",
	"redisstore": module + "/core/redisstore", "storetest": module + "/core/storetest",
	"nethttp": module + "/nethttp", "obey": module + "/nethttp/obey",
	"gateway": module + "/nethttp/gateway", "ginmw": module + "/ginmw",
	"echomw": module + "/echomw", "fibermw": module + "/fibermw", "observe": module + "/observe", "inspect": module + "/observe/inspect",

	"chi": "github.com/go-chi/chi/v5", "echo": "github.com/labstack/echo/v4",
	"fiber": "github.com/gofiber/fiber/v2", "gin": "github.com/gin-gonic/gin",
	"redis": "github.com/redis/go-redis/v9",
}

// given are the names that a snippet need not declare, with their types.
var given = map[string]string{
	"config": "guard.Config", "ctx": "context.Context", "g": "*guard.Guard", "policy": "core.Policy",
	"store": "core.Store", "rdb": "redis.UniversalClient",

	"mux": "*http.ServeMux", "handler": "http.Handler",
	"engine": "*gin.Engine", "r": "*gin.Engine", "ginHandler": "gin.HandlerFunc",
	"e": "*echo.Echo", "echoHandler": "echo.HandlerFunc",
	"app": "*fiber.App", "fiberHandler": "fiber.Handler",
	"router": "chi.Router",
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	// The result may be cached only as long as nothing changes that a snippet could use. Files that
	// a test has looked at are part of the cache's key.
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" {
			_, err = os.Stat(path)
		}
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	documents, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*.md", "*/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, "docs", pattern))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, pages...)
	}
	readme := filepath.Join(root, "README.md")
	if !slices.Contains(documents, readme) {
		documents = append(documents, readme)
	}
	for _, path := range documents {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range check(t, filepath.Base(path), string(text)) {
				t.Error(problem)
			}
		})
	}
}

// check returns what is wrong with the snippets of one document, each with its line.
func check(t *testing.T, name, text string) []string {
	t.Helper()
	var problems []string
	var programs []block
	for _, b := range blocks(text) {
		switch b.language {
		case "go":
			if b.from != "" {
				problems = append(problems, quoted(name, b)...)
				continue
			}
			source, err := program(b, document(t, name))
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s:%d: %v", name, b.line, err))
				continue
			}
			b.text = source
			programs = append(programs, b)
		case "sh", "bash", "shell", "console":
			problems = append(problems, commands(name, b)...)
		}
	}
	return append(problems, compile(t, name, programs)...)
}

// document is the path that the compiler shall believe the snippets of a document to come from.
func document(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A block is the inside of a fence.
type block struct {
	language string
	text     string
	given    map[string]string // from the comment before the fence
	from     string            // the file that it is quoted from, from another comment
	line     int               // of the first line of text, counted from 1
}

var (
	fence   = regexp.MustCompile("^(\\s*)(`{3,}|~{3,})\\s*([A-Za-z]*)")
	source  = regexp.MustCompile(`^\s*<!--\s*from:\s*(.*?)\s*-->\s*$`)
	comment = regexp.MustCompile(`^\s*<!--\s*given:\s*(.*?)\s*-->\s*$`)
)

// blocks finds the fenced blocks of a Markdown text.
func blocks(text string) []block {
	var found []block
	var open *block
	var indent, mark string
	var names map[string]string
	from := ""
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open != nil && m != nil && strings.HasPrefix(m[2], mark) && strings.TrimSpace(line) == m[2]:
			found = append(found, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case m != nil:
			indent, mark = m[1], m[2]
			open = &block{language: strings.ToLower(m[3]), line: i + 2, given: names, from: from}
			names, from = nil, ""
		case source.MatchString(line):
			from = source.FindStringSubmatch(line)[1]
		case comment.MatchString(line):
			names = map[string]string{}
			for pair := range strings.SplitSeq(comment.FindStringSubmatch(line)[1], ", ") {
				name, kind, _ := strings.Cut(strings.TrimSpace(pair), " ")
				names[name] = kind
			}
		case strings.TrimSpace(line) != "":
			names, from = nil, ""
		}
	}
	return found
}

// quoted returns the problems of a snippet that is a part of a file.
func quoted(name string, b block) []string {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.from)))
	if err != nil {
		return []string{fmt.Sprintf("%s:%d: it is said to be from %s, and there is no such file", name, b.line, b.from)}
	}
	lines := func(s string) (out []string) {
		for line := range strings.Lines(s) {
			out = append(out, strings.TrimSpace(line))
		}
		return out
	}
	whole, part := lines(string(text)), lines(strings.TrimSpace(b.text))
	for i := range whole {
		if i+len(part) <= len(whole) && slices.Equal(part, whole[i:i+len(part)]) {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s:%d: these lines do not stand in %s", name, b.line, b.from)}
}

// program makes a Go file of a snippet. Line directives make the compiler name the document's lines.
func program(b block, path string) (string, error) {
	at := func(line int) string { return fmt.Sprintf("//line %s:%d:1\n", path, line) }
	parse := func(text string, mode parser.Mode) (*token.FileSet, *ast.File, error) {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, mode|parser.ParseComments)
		return fset, file, err
	}
	if _, file, err := parse(b.text, parser.PackageClauseOnly); err == nil && file.Name != nil {
		return at(b.line) + b.text, nil
	}

	// Its own imports stay first, whatever follows them.
	const clause = "package snippet\n"
	var imports string
	rest, restLine := b.text, b.line
	fset, file, err := parse(clause+at(b.line)+b.text, parser.ImportsOnly)
	if err != nil {
		return "", fmt.Errorf("its imports cannot be read: %w", err)
	}
	if n := len(file.Decls); n > 0 {
		end := fset.PositionFor(file.Decls[n-1].End(), false).Offset - len(clause+at(b.line))
		imports, rest = b.text[:end], b.text[end:]
		restLine += strings.Count(imports, "\n")
	}

	body := at(restLine) + rest
	if _, file, err = parse(clause+body, 0); err != nil {
		_, file, err = parse(clause+"func _() {\n"+body+"\n}\n", 0)
		if err != nil {
			return "", fmt.Errorf("neither declarations nor statements: %w", err)
		}
		body = "func _() {\n" + body + use(file) + "}\n"
	}

	vars := ""
	for _, name := range unresolved(file) {
		kind := b.given[name]
		if kind == "" {
			kind = given[name]
		}
		if kind != "" {
			vars += fmt.Sprintf("var %s %s\n", name, kind)
		}
	}

	head := clause + at(b.line) + imports + "\n"
	if _, file, err = parse(head+vars+body, 0); err != nil {
		return "", fmt.Errorf("cannot be wrapped: %w", err)
	}
	more := ""
	for _, name := range unresolved(file) {
		if p := packages[name]; p != "" && !imported(file, name, p) {
			more += fmt.Sprintf("import %s %q\n", name, p)
		}
	}
	return head + more + vars + body, nil
}

// unresolved lists the names that a file uses and does not declare, packages among them.
func unresolved(file *ast.File) []string {
	var names []string
	for _, id := range file.Unresolved {
		names = append(names, id.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// imported reports whether a file imports a package by itself.
func imported(file *ast.File, name, path string) bool {
	return slices.ContainsFunc(file.Imports, func(s *ast.ImportSpec) bool {
		if s.Name != nil {
			return s.Name.Name == name
		}
		return s.Path.Value == fmt.Sprintf("%q", path)
	})
}

// use returns statements that use the variables which the only function of a file declares in its
// outermost block.
func use(file *ast.File) string {
	var names []string
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && id.Name != "_" {
			names = append(names, id.Name)
		}
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for _, s := range f.Body.List {
			switch s := s.(type) {
			case *ast.AssignStmt:
				if s.Tok == token.DEFINE {
					for _, left := range s.Lhs {
						add(left)
					}
				}
			case *ast.DeclStmt:
				if d, ok := s.Decl.(*ast.GenDecl); ok && d.Tok == token.VAR {
					for _, spec := range d.Specs {
						for _, id := range spec.(*ast.ValueSpec).Names {
							add(id)
						}
					}
				}
			}
		}
	}
	slices.Sort(names)
	text := ""
	for _, name := range slices.Compact(names) {
		text += "_ = " + name + "\n"
	}
	return text
}

// compile builds all snippets of a document in one go and returns what the compiler says.
func compile(t *testing.T, name string, programs []block) []string {
	t.Helper()
	if len(programs) == 0 {
		return nil
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]string{}
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json")}
	if len(programs) == 1 {
		args = append(args, "-o", os.DevNull) // one program would be kept, several are not
	}
	for _, b := range programs {
		folder := fmt.Sprintf("internal_doccheck_snippets/%s_line_%d", strings.ReplaceAll(name, ".", "_"), b.line)
		kept := filepath.Join(dir, fmt.Sprintf("%d.go", b.line))
		if err := os.WriteFile(kept, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(top, folder, "snippet.go")] = kept
		args = append(args, "./"+folder)
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = top
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	var problems []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") {
			problems = append(problems, strings.TrimPrefix(strings.TrimSpace(line), "./"))
		}
	}
	return append(problems, fmt.Sprintf("%s: go build: %v; a name that a snippet neither declares nor imports "+
		"is given by the tables in internal/doccheck or by a comment before it, <!-- given: name Type -->", name, err))
}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// commands returns what is wrong with the go commands of a shell block: paths that do not exist.
func commands(name string, b block) []string {
	var problems []string
	for i, line := range strings.Split(b.text, "\n") {
		line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), " #")
		dir := root
		for command := range strings.SplitSeq(line, "&&") {
			words := strings.Fields(command)
			for len(words) > 0 && assignment.MatchString(words[0]) {
				words = words[1:]
			}
			if len(words) == 2 && words[0] == "cd" {
				dir = filepath.Join(dir, words[1])
			}
			if len(words) < 2 || words[0] != "go" {
				continue
			}
			within := dir
			if len(words) > 3 && words[2] == "-C" {
				within = filepath.Join(dir, words[3])
			}
			for _, word := range words[2:] {
				path, all := strings.CutSuffix(word, "...")
				if !strings.HasPrefix(path, "./") {
					continue
				}
				if missing := lacksGo(filepath.Join(within, path), all); missing != "" {
					problems = append(problems, fmt.Sprintf("%s:%d: %s: %s", name, b.line+i, strings.TrimSpace(command), missing))
				}
			}
		}
	}
	return problems
}

// lacksGo returns why a go command cannot be given a path.
func lacksGo(path string, all bool) string {
	info, err := os.Stat(path)
	if err != nil {
		return "there is no such path"
	}
	if info.IsDir() && !all {
		if files, _ := filepath.Glob(filepath.Join(path, "*.go")); len(files) == 0 {
			return "there are no Go files"
		}
	}
	return ""
}
