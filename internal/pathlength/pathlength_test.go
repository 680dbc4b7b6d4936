// Package pathlength counts what a request passes through, so that it does not grow unseen.
package pathlength

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/redistest"
)

const module = "github.com/weir-go/weir/"

// A refused request is the attack, and what a reader follows to understand the library: it passes through so many
// functions of more than one line, and files, at most: one that asks Redis, and one that is answered from memory.
const (
	maxFunctions = 42
	maxFiles     = 18
)

func TestRefusedRequest(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("it builds the module, and the path is the same with the race detector")
	}
	program := filepath.Join(t.TempDir(), "refused")
	run(t, "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+module+"...", "-o", program, "./testdata/refused")
	for _, test := range []struct{ name, remembered, through string }{
		{"by Redis", "-1", "core/redisstore/flight.go fly"},
		{"from memory", "100", "core/redisstore/internal/denials/denials.go again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			counters, profile := filepath.Join(dir, "counters"), filepath.Join(dir, "profile")
			require.NoError(t, os.Mkdir(counters, 0o700))
			run(t, program, redistest.Single(t).Addr(), counters, test.remembered)
			run(t, "go", "tool", "covdata", "textfmt", "-i="+counters, "-o="+profile)

			path, files := passed(t, profile)
			t.Logf("%d functions in %d files:\n%s", len(path), files, strings.Join(path, "\n"))
			for _, f := range []string{"core/guard/serve.go Serve", "core/redisstore/store.go Take", test.through} {
				require.Contains(t, path, f, "a request passes through it")
			}
			assert.LessOrEqual(t, len(path), maxFunctions, "functions")
			assert.LessOrEqual(t, files, maxFiles, "files")
		})
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}

// block is a line of a profile: where some statements begin, how many they are, and how often they were executed.
var block = regexp.MustCompile(`^` + regexp.QuoteMeta(module) + `(.*):(\d+)\.(\d+),\d+\.\d+ \d+ (\d+)$`)

// passed lists the functions of more than one line that were executed, function literals as a part of those around
// them.
func passed(t *testing.T, profile string) (functions []string, files int) {
	t.Helper()
	text, err := os.ReadFile(profile)
	require.NoError(t, err)
	executed := map[string][]position{}
	for line := range strings.Lines(string(text)) {
		m := block.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || m[4] == "0" || strings.Contains(m[1], "testdata/") {
			continue
		}
		at := position{number(t, m[2]), number(t, m[3])}
		executed[m[1]] = append(executed[m[1]], at)
	}
	for file, at := range executed {
		found := inFile(t, file, at)
		if functions = append(functions, found...); len(found) > 0 {
			files++
		}
	}
	slices.Sort(functions)
	return functions, files
}

type position struct{ line, column int }

func (p position) before(q position) bool {
	return p.line < q.line || p.line == q.line && p.column < q.column
}

// inFile lists the functions of a file of the module in which some position is.
func inFile(t *testing.T, file string, executed []position) (functions []string) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join("..", "..", file), nil, 0)
	require.NoError(t, err)
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || set.Position(f.Pos()).Line == set.Position(f.End()).Line {
			continue
		}
		begin, end := set.Position(f.Body.Pos()), set.Position(f.Body.End())
		if slices.ContainsFunc(executed, func(p position) bool {
			return !p.before(position{begin.Line, begin.Column}) && p.before(position{end.Line, end.Column})
		}) {
			functions = append(functions, fmt.Sprintf("%s %s", file, f.Name.Name))
		}
	}
	return functions
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// An adapter translates, and decides nothing: what it needs for that is one file of so many lines with code.
const maxAdapter = 80

func TestAdaptersAreThin(t *testing.T) {
	for _, adapter := range []string{"nethttp", "ginmw", "echomw", "fibermw"} {
		set, lines := token.NewFileSet(), map[int]bool{}
		file, err := parser.ParseFile(set, filepath.Join("..", "..", adapter, adapter+".go"), nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil {
				lines[set.Position(n.Pos()).Line], lines[set.Position(n.End()-1).Line] = true, true
			}
			return true
		})
		t.Logf("%s: %d lines", adapter, len(lines))
		assert.Less(t, len(lines), maxAdapter, adapter)
	}
}
