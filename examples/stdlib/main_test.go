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
	assert.Equal(t, `GET /hello 200 hello
POST /login 200 welcome
POST /login 200 welcome
POST /login 429 {"error":"slow down","policy":"login"}
GET /reports/7 200 a report
GET /reports/8 429 {"error":"slow down","policy":"reports"}
`, out.String())
}
