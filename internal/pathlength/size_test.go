package pathlength_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/race"
)

// A limit adds no more to a program than this. About 280 KB of it are log/slog, which brings encoding/json; a program
// that logs through it has them already. Another 8 KB write an Event and a Result into a log.
const mostAdded = 1400 << 10

// What only those use who call Describe, or who have another use for it, is in no program that limits.
func TestSize(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("it builds programs, which are larger with the race detector")
	}
	plain, _ := build(t, "plain")
	limited, symbols := build(t, "limited")
	t.Logf("a limit adds %d KB", (limited-plain)>>10)
	assert.Less(t, limited-plain, int64(mostAdded))
	for _, unwanted := range []string{" regexp.", " regexp/syntax.", " text/tabwriter.", " text/template.", " html."} {
		assert.False(t, strings.Contains(symbols, unwanted), "a limited program has%s", unwanted)
	}
}

// build returns how long the executable of a program in testdata is, without what only debuggers read, and its symbols.
func build(t *testing.T, program string) (size int64, symbols string) {
	t.Helper()
	run := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	dir := t.TempDir()
	stripped, whole := filepath.Join(dir, "stripped"), filepath.Join(dir, "whole")
	run("build", "-ldflags=-s -w", "-o", stripped, "./testdata/"+program)
	run("build", "-o", whole, "./testdata/"+program)
	info, err := os.Stat(stripped)
	require.NoError(t, err)
	return info.Size(), strings.ReplaceAll(run("tool", "nm", whole), "\t", " ")
}
