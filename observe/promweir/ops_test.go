package promweir_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/observe/promweir"
)

// ops has the alerts and the dashboard.
const ops = "../ops"

// program returns the path of a program of Debian's package prometheus, or skips the test.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("WEIR_REQUIRE_PROMETHEUS") != "" {
			t.Fatalf("%s is not installed, and WEIR_REQUIRE_PROMETHEUS is set", name)
		}
		t.Skipf("%s is not installed", name)
	}
	return path
}

func promtool(t *testing.T, input string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "promtool"), args...)
	cmd.Dir, cmd.Stdin = ops, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "promtool %s:\n%s", strings.Join(args, " "), out)
}

func TestRules(t *testing.T) {
	t.Parallel()
	promtool(t, "", "check", "rules", "--lint=all", "--lint-fatal", "weir.rules.yml")
	promtool(t, "", "test", "rules", "weir.test.yml")
}

// What is scraped is as Prometheus recommends.
func TestNames(t *testing.T) {
	t.Parallel()
	o := newObserver(t)
	o.Observe(refused("api"))
	promtool(t, scrape(t, registered(t, o, promweir.Options{})), "check", "metrics")
}

var (
	alertName = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)
	testCase  = regexp.MustCompile(`(?m)^ *alertname: (\w+)\n *exp_alerts:( \[\])?$`)
)

// Each alert has a case in which it fires, and one in which it is silent. That they are so is for promtool.
func TestEachAlertHasCases(t *testing.T) {
	t.Parallel()
	cases := map[string]map[bool]bool{}
	for _, m := range testCase.FindAllStringSubmatch(file(t, "weir.test.yml"), -1) {
		if cases[m[1]] == nil {
			cases[m[1]] = map[bool]bool{}
		}
		cases[m[1]][m[2] == ""] = true
	}
	for _, m := range alertName.FindAllStringSubmatch(file(t, "weir.rules.yml"), -1) {
		assert.True(t, cases[m[1]][true], "%s never fires", m[1])
		assert.True(t, cases[m[1]][false], "%s is never silent", m[1])
		delete(cases, m[1])
	}
	assert.Empty(t, cases, "cases of no alert")
}

// The panels of the dashboard have numbers and places of their own, and each that shows something says what.
func TestDashboard(t *testing.T) {
	t.Parallel()
	type rectangle struct{ X, Y, W, H int }
	var dashboard struct {
		Panels []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  rectangle
			Targets                  []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(file(t, "weir.dashboard.json")), &dashboard))
	ids, places := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		assert.False(t, ids[p.ID], "a second panel %d", p.ID)
		ids[p.ID] = true
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				assert.Empty(t, places[at], "%s covers another panel", p.Title)
				places[at] = p.Title
			}
		}
		if p.Type != "row" {
			assert.NotEmpty(t, p.Description, p.Title)
			assert.NotEmpty(t, p.Targets, p.Title)
		}
	}
}

func file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(ops, name))
	require.NoError(t, err)
	return string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
}
