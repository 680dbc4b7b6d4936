package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	assert.Equal(t, `  200 tokens: 200, 9000 left besides the estimate
 9000 tokens: 200, 8800 left besides the estimate
 4000 tokens: 200, 0 left besides the estimate
    1 tokens: 429, 0 left besides the estimate
`, out.String())
}
