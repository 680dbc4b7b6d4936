package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each patch still fits, and the mutant compiles. Whether the soak notices it takes minutes, which is the command's.
func TestMutantsCompile(t *testing.T) {
	t.Parallel()
	all, err := read()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(all), 10)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, m.breed(t.Context(), dir))
			out, err := command(t.Context(), dir, "go", "build", "-trimpath", "./core/redisstore").CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
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
