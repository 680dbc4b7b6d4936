package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFleet(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("it needs redis-server")
	}
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	for _, want := range []string{"left of 100", "The fleet says \"200/1m\":", "left of 200", "left of 300", "says nothing"} {
		assert.Contains(t, out.String(), want)
	}
}
