package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One passes at once, and twelve wait. How many more find a turn of their own depends on when they arrive.
func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out, 20))
	served, degraded := strings.Count(out.String(), "200 OK from the engine"), strings.Count(out.String(), "200 OK from yesterday")
	assert.Equal(t, 20, served+degraded, out.String())
	assert.GreaterOrEqual(t, served, 13, out.String())
}
