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
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 7)
	for i, line := range lines {
		if i < 5 {
			assert.Equal(t, "GET /hello  "+string(rune('1'+i))+". 200 OK, "+string(rune('4'-i))+" left of 5", line)
		} else {
			assert.Regexp(t, `^GET /hello  [67]\. 429 Too Many Requests, to be tried again after 1?\d s$`, line)
		}
	}
}
