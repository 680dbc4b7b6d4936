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
	assert.Equal(t, `stream 1: 200 OK
stream 2: 200 OK
stream 3: 429 Too Many Requests
when one has ended: 200 OK
`, out.String())
}
