package main

import (
	"flag"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The test program is also the program, for the processes that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-api" {
		main()
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

var summary = regexp.MustCompile(`the API has answered (\d+) requests in 3s, and (\d+) of them with 429`)

func obeyed(t *testing.T, args ...string) (out string, answered, refused int) {
	t.Helper()
	var b strings.Builder
	require.NoError(t, run(&b, append(args, "-for", "3s")))
	found := summary.FindStringSubmatch(b.String())
	require.NotNil(t, found, b.String())
	answered, _ = strconv.Atoi(found[1])
	refused, _ = strconv.Atoi(found[2])
	return b.String(), answered, refused
}

func TestRun(t *testing.T) {
	t.Parallel()
	out, answered, refused := obeyed(t)
	assert.Positive(t, answered, out)
	assert.Zero(t, refused, out)
}

// Two processes see each other in the answers alone: now and then both take the last unit.
func TestProcesses(t *testing.T) {
	t.Parallel()
	out, answered, refused := obeyed(t, "-processes", "2")
	assert.Equal(t, 2, strings.Count(out, "process "), out)
	assert.Less(t, refused, answered/4, out)
	assert.Error(t, run(&strings.Builder{}, []string{"-processes", "0"}))
}
