package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Made-up keys share what the address has: inventing them brings nothing.
func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	assert.Equal(t, `""         3 of 8 served
"made-up"  0 of 8 served
"key-1"    4 of 8 served
"key-2"    6 of 8 served
"key-3"    8 of 8 served
`, out.String())
}
