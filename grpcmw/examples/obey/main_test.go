package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func calls(t *testing.T, args ...string) (admitted, refused int) {
	t.Helper()
	var out strings.Builder
	require.NoError(t, run(&out, append(args, "-for", "3s")))
	_, err := fmt.Sscanf(out.String(), "in 3s: %d calls admitted, %d refused", &admitted, &refused)
	require.NoError(t, err, out.String())
	return admitted, refused
}

// Of the workers that obey, those are refused that were under way before the first answer.
func TestRun(t *testing.T) {
	t.Parallel()
	admitted, refused := calls(t)
	assert.Positive(t, admitted)
	assert.LessOrEqual(t, refused, 5)
}

// A client that does not is refused again and again.
func TestDisobedient(t *testing.T) {
	t.Parallel()
	admitted, refused := calls(t, "-obey=false")
	assert.Positive(t, admitted)
	assert.Greater(t, refused, admitted)
}
