package enforce_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/explaintest"
)

// statesToExplain is the number of random states that are explained: WEIR_EXPLAIN_STATES, or a few.
func statesToExplain(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("WEIR_EXPLAIN_STATES")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// What Explain says is what then happens, for every algorithm.
func TestExplainAgreesInProcess(t *testing.T) {
	t.Parallel()
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	explaintest.Check(t, m, 5, statesToExplain(t, 3000))
}
