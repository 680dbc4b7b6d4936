// Package mutants breaks the library on purpose and shows that the soak notices it. It needs what the soak needs, and
// git to apply patches:
//
//	go test ./soak/mutants                                                  # all of them still compile
//	go test ./soak/mutants -v -timeout 1h -soak 3m                          # each in turn, which takes some minutes
//	go test ./soak/mutants -v -timeout 1h -soak 3m -run TestMutants/hand-back # those whose names match
//
// A mutant is a patch beside this file. It begins with what it breaks, and with the checks of the soak of which one has
// to notice it. The soak of the library that it breaks has to end with status 1 because of such a check.
package mutants_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/hosttest"
)

var (
	duration = flag.Duration("soak", 0, "for how long the soak of a mutant may go on without noticing; 0 for none")
	seed     = flag.Uint64("seed", 1, "which faults the soak brings")
)

// Each patch still fits, and the mutant compiles. The soak notices it, if -soak gives it the time.
func TestMutants(t *testing.T) {
	patches, err := filepath.Glob("*.patch")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(patches), 10)
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(patch, ".patch"), func(t *testing.T) {
			text, err := os.ReadFile(patch)
			require.NoError(t, err)
			lines := strings.SplitN(string(text), "\n", 3)
			require.Len(t, lines, 3)
			checks, ok := strings.CutPrefix(lines[1], "Noticed by: ")
			require.True(t, ok, "%s begins with %q, expected what it breaks and \"Noticed by: checks\"", patch, lines[:2])
			overlay, program := breed(t, lines[2]), filepath.Join(t.TempDir(), "soak")
			if *duration == 0 {
				build(t, "-overlay", overlay, "github.com/weir-go/weir/core/enforce", "github.com/weir-go/weir/core/redisstore")
				return
			}
			build(t, "-overlay", overlay, "-o", program, "github.com/weir-go/weir/bench/soak")
			soak := exec.CommandContext(t.Context(), program, //nolint:gosec // it has just been made
				"-first", "-duration", duration.String(), "-seed", strconv.FormatUint(*seed, 10))
			hosttest.Tie(soak)
			out, err := soak.Output()
			var status *exec.ExitError
			require.ErrorAs(t, err, &status, "%s Nothing noticed it.", lines[0])
			require.Equal(t, 1, status.ExitCode(), "%s", status.Stderr)
			assert.Contains(t, strings.Split(checks, ", "), checkOf(string(out)), "%s\n%s", lines[0], status.Stderr)
		})
	}
}

// breed applies a patch to copies of the files that it changes, and returns a file by which go build takes them for the
// library's.
func breed(t *testing.T, patch string) (overlay string) {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	for _, changed := range regexp.MustCompile(`(?m)^\+\+\+ b/(.*)$`).FindAllStringSubmatch(patch, -1) {
		from, to := filepath.Join(root, changed[1]), filepath.Join(dir, changed[1])
		text, err := os.ReadFile(from) //nolint:gosec // a file of the checkout
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o750))
		require.NoError(t, os.WriteFile(to, text, 0o600))
		replace[from] = to
	}
	apply := exec.CommandContext(t.Context(), "git", "apply", "-")
	apply.Dir, apply.Stdin = dir, strings.NewReader(patch)
	out, err := apply.CombinedOutput()
	require.NoError(t, err, "the patch does not fit; make the same change again and write it with git diff\n%s", out)
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	overlay = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	return overlay
}

func build(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"build"}, args...)...).CombinedOutput() //nolint:gosec // ours
	require.NoError(t, err, "the mutant does not compile\n%s", out)
}

// checkOf returns the first check that failed by what the soak has printed, or "".
func checkOf(out string) string {
	found := regexp.MustCompile(`(?m)^BROKEN: after fault \d+: (?:process \d+: )?([a-z]+): `).FindStringSubmatch(out)
	if found == nil {
		return ""
	}
	return found[1]
}

func TestCheckOf(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"BROKEN: after fault 3: once: key 0-1 of own: 1/1d: 3 units are charged":   "once",
		"BROKEN: after fault 0: process 1: others: one is refused who is not over": "others",
		"   3  refused for 409ms: back after 1.269s; BROKEN: bound: the server":    "",
		"23 faults, 450575 decisions":                                              "",
	} {
		assert.Equal(t, want, checkOf(line), line)
	}
}
