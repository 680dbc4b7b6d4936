package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	assert.Equal(t, `socket 1: 101 Switching Protocols
socket 2: 101 Switching Protocols
socket 3: 429 Too Many Requests
when one has ended: 101 Switching Protocols
`, out.String())
}
