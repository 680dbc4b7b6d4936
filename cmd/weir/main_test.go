package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/inwords"
)

// programs is the directory with the two programs that the tests run.
var programs string

func TestMain(m *testing.M) {
	os.Exit(withPrograms(m))
}

// withPrograms builds weir, and weir-admin from its module beside this one, and runs the tests.
func withPrograms(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "weir"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	for _, p := range []struct{ dir, pkg string }{{".", "."}, {"../../admin", "./cmd/weir-admin"}} {
		build := exec.Command("go", "build", "-o", programs+"/", p.pkg)
		build.Dir = p.dir
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build %s: %v\n%s", p.pkg, err, out)
			return 1
		}
	}
	return m.Run()
}

// result has the output of a run of weir, and its status.
type result struct {
	out, err string
	code     int
}

// weir runs the program with these arguments, and env in its environment.
func weir(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return weirReading(t, "", env, args...)
}

func weirReading(t *testing.T, in string, env []string, args ...string) result {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "weir"), args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), strings.NewReader(in), &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return result{out.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// file writes a file and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const good = `format: 1
app: pay
policies:
  api:
    text: 200/1m; shadow
    tiers:
      pro: 5000/1m
  login:
    text: 5/1m
`

func TestLint(t *testing.T) {
	t.Parallel()
	path := file(t, good)
	r := weir(t, nil, "lint", path)
	assert.Equal(t, result{"1 file without mistakes\n", "", 0}, r)
	assert.Equal(t, result{"1 file without mistakes\n", "", 0}, weirReading(t, good, nil, "lint", "-"))

	bad := file(t, "format: 1\npolicies:\n  api:\n    text: 5/1x\n    tiers:\n      pro: 010\n  login:\n    limit: 5\n")
	r = weir(t, nil, "lint", bad, path)
	assert.Equal(t, 1, r.code)
	assert.Empty(t, r.err)
	out := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Len(t, out, 3)
	assert.Contains(t, out[0], bad+`:4:11: policies.api.text: "5/1x": at offset 3, found "x"`)
	assert.Contains(t, out[1], bad+`:6:12: policies.api.tiers.pro: found the number 010`)
	assert.Contains(t, out[2], bad+`:8:5: policies.login.limit: there is no such field`)

	var all findings
	r = weir(t, nil, "lint", "-json", bad)
	assert.Equal(t, 1, r.code)
	require.NoError(t, json.Unmarshal([]byte(r.out), &all))
	require.Len(t, all.Mistakes, 3)
	assert.Equal(t, finding{
		bad, 6, 12, "policies.api.tiers.pro", `found the number 010: give a text such as "100/1m", in quotes`,
	}, all.Mistakes[1])

	r = weir(t, nil, "lint", path+".gone")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "no such file")

	endless := file(t, "")
	require.NoError(t, os.Truncate(endless, 1<<40)) // of which nothing is stored
	r = weir(t, nil, "lint", endless)
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.out, "the file has more than 2097152 bytes")
}

// What a program can read may still be what no service could use.
func TestLintLooksCloser(t *testing.T) {
	t.Parallel()
	path := file(t, `format: 1
policies:
  api:
    text: 200/1m; shadow
    tiers:
      pro: 5000/1m fixed-window
      free: 9/1m; fail closed
      staff: unlimited
    keys:
      user=7: blocked
`)
	r := weir(t, nil, "lint", path)
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.out, `policies.api.tiers["pro"]: no service could use it: `)
	assert.Contains(t, r.out, `warning: `+path+`: policies.api.keys["user=7"]: the policy is on trial and refuses nobody, so that "blocked" has no effect`)
	assert.Equal(t, 2, strings.Count(r.out, "\n"), r.out)

	before := file(t, "format: 1\npolicies:\n  api: {text: 100/1h; epoch 3}\n  login: {text: 5/1m}\n  web: {text: 100/1h}\n")
	after := file(t, "format: 1\npolicies:\n  api: {text: 200/1h}\n  login: {text: 5/1m sliding-log}\n  web: {text: 100/1m}\n")
	r = weir(t, nil, "lint", "-before", before, after)
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.out, "policies.api.text: the epoch goes back from 3 to 0")
	assert.Contains(t, r.out, "policies.login.text: no service could use it: ")
	assert.Contains(t, r.out, "policies.web.text: counting starts afresh for everybody")
}

func TestExplainCommand(t *testing.T) {
	t.Parallel()
	r := weir(t, nil, "explain", "20/1s, 1000/1d; fail closed")
	assert.Equal(t, 0, r.code, r.err)
	assert.Contains(t, r.out, "at once    20 units")
	assert.Contains(t, r.out, "in any 1d  1999 units at most")
	assert.Contains(t, r.out, "while the store fails, all is refused")

	r = weir(t, nil, "-json", "explain", "100/1h", "1000/1h; shadow")
	var x struct {
		AtOnce int64
		Within []inwords.Within
		Then   inwords.Policy
		Change inwords.Change
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &x), r.out)
	assert.Equal(t, int64(100), x.AtOnce)
	assert.Equal(t, []inwords.Within{{Time: "1h", Most: 199}}, x.Within)
	assert.Equal(t, int64(1000), x.Then.AtOnce)
	assert.True(t, x.Change.Fits)
	assert.True(t, x.Change.Kept)

	r = weir(t, nil, "explain", "5 per minute")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, `weir: core: policy "5 per minute": at offset 2`)
	r = weir(t, nil, "explain", "-json", "5 per minute")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.out, `"error": "core: policy`)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	r := weir(t, nil, "-help")
	assert.Equal(t, 0, r.code)
	for _, name := range []string{"lint", "explain", "apply", "get", "history", "rollback", "services", "adopt"} {
		assert.Contains(t, r.out, "\n  "+name+" ")
	}
	assert.Equal(t, 1, weir(t, nil).code)
	r = weir(t, nil, "lnit")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "lnit")
	assert.Equal(t, 1, weir(t, nil, "explain", "-jsno", "5/1m").code)

	r = weir(t, nil, "get")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "no token; give -token-file")
	r = weir(t, nil, "get", "-server", "127.0.0.1:7070")
	assert.Equal(t, failed, r.code)
	assert.Contains(t, r.err, `the server is "127.0.0.1:7070"; give -server, or WEIR_SERVER, a URL such as http://127.0.0.1:7070`)
	empty := file(t, "\n# nothing\n")
	r = weir(t, []string{"WEIR_TOKEN_FILE=" + empty}, "get")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "is empty")
	r = weir(t, []string{"WEIR_TOKEN_FILE=" + file(t, "secret"), "WEIR_SERVER=http://127.0.0.1:1"}, "get", "-json")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.out, `"error":`)
	assert.Contains(t, r.out, "connection refused")
}

// A terminal obeys what stands in a text: nothing of it is written as it came.
func TestShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain ä 中 text":  "plain ä 中 text",
		"\x1b[2J":         `"\x1b[2J"`,
		"\u009b2J":        `"\u009b2J"`,
		"a\nb":            `"a\nb"`,
		"\u202eevil":      `"\u202eevil"`,
		"\xff":            `"\xff"`,
		"\U000E0041":      `"\U000e0041"`,
		"zero\u200bwidth": `"zero\u200bwidth"`,
	} {
		got := shown(text)
		if text == "\xff" { // the replacement character can be shown
			continue
		}
		assert.Equal(t, want, got)
		var out bytes.Buffer
		(&environment{out: &out}).print(map[string]string{"text": text})
		for _, r := range out.String() {
			assert.True(t, r == '\n' || shown(string(r)) == string(r), "%q in %q", r, out.String())
		}
		var back map[string]string
		require.NoError(t, json.Unmarshal(out.Bytes(), &back))
		assert.Equal(t, text, back["text"])
	}
}
