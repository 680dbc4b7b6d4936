package doccheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// named is a test in a document: a directory, a function, and the name of a part of it.
var named = regexp.MustCompile("`([a-z0-9/-]+)\\.((?:Test|Fuzz)\\w+)(?:/([^`]+))?`")

// Each row of the faults names tests, and each of these exists.
func TestFaultsNameTheirTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "contributing", "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| what happens ") {
			continue
		}
		rows++
		for _, problem := range missing(t, line) {
			t.Errorf("%s%s", line, problem)
		}
	}
	if rows < 70 {
		t.Errorf("only %d rows", rows)
	}
}

// suites has the packages with the parts of tests that several packages run under one name.
var suites = map[string]string{
	"TestAdapter": "internal/adaptertest", "TestEcho": "internal/echotest", "TestFiber": "internal/fibertest",
}

// missing returns the problems with the tests that a row names.
func missing(t *testing.T, row string) (problems []string) {
	t.Helper()
	all := named.FindAllStringSubmatch(row, -1)
	if len(all) == 0 {
		return []string{"it names no test"}
	}
	for _, m := range all {
		in := textsOf(t, m[1])
		parts := in
		if suite, ok := suites[m[2]]; ok {
			parts = textsOf(t, suite)
		}
		switch {
		case !in.functions[m[2]]:
			problems = append(problems, "there is no "+m[2]+" in "+m[1])
		case m[3] != "" && !parts.texts[m[3]]:
			problems = append(problems, "no part of a test in "+m[1]+" is called "+strconv.Quote(m[3]))
		}
	}
	return problems
}

// testTexts holds the functions and the texts in the tests of a package.
type testTexts struct{ functions, texts map[string]bool }

var testsRead sync.Map // string -> func() (testTexts, error), by directory

func textsOf(t *testing.T, dir string) testTexts {
	t.Helper()
	read, _ := testsRead.LoadOrStore(dir, sync.OnceValues(func() (testTexts, error) { return readTests(dir) }))
	s, err := read.(func() (testTexts, error))()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readTests(dir string) (testTexts, error) {
	s := testTexts{make(map[string]bool), make(map[string]bool)}
	files := "*_test.go"
	if strings.HasSuffix(dir, "test") {
		files = "*.go"
	}
	paths, err := filepath.Glob(filepath.Join(root, dir, files))
	if err != nil {
		return s, err
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return s, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				s.functions[n.Name.Name] = s.functions[n.Name.Name] || n.Recv == nil
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					s.texts[text] = true
				}
			}
			return true
		})
	}
	return s, nil
}

func TestMissingTestsAreFound(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]string{
		"| a | b | |":                  "it names no test",
		"| `core` | b | |":             "it names no test",
		"| a | b | `core.TestParse` |": "",
		"| a | b | `core.TestParse`, `core.TestNowhere` |":                                        "there is no TestNowhere in core",
		"| a | b | `nowhere.TestParse` |":                                                         "there is no TestParse in nowhere",
		"| a | b | `core/redisstore.TestEveryFault/a slot moves` |":                               "",
		"| a | b | `core/redisstore.TestEveryFault/pigs fly` |":                                   `no part of a test in core/redisstore is called "pigs fly"`,
		"| a | b | `nethttp.TestAdapter/clients that leave a queue` |":                            "",
		"| a | b | `nethttp.TestAdapter/clients that stay for ever` |":                            `no part of a test in nethttp is called "clients that stay for ever"`,
		"| a | b | `core/redisstore.TestSoak`, `core.FuzzExplain`, `core/internal/algo.TestOf` |": "there is no TestOf in core/internal/algo",
	} {
		if got := strings.Join(missing(t, row), "; "); got != want {
			t.Errorf("%s\ngot  %q\nwant %q", row, got, want)
		}
	}
}
