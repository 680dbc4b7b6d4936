package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/race"
)

func TestMain(m *testing.M) {
	if os.Getenv(serviceEnv) != "" { // it is a service of this test
		main()
		return
	}
	os.Exit(m.Run())
}

func needs(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("it needs redis-server")
	}
	if race.Enabled {
		t.Skip("there is no SQLite with the race detector")
	}
}

// A fleet whose parts are killed and stopped in any order has lost nothing; the program has longer runs.
func TestKill(t *testing.T) {
	needs(t)
	require.NoError(t, run(t.Context(), []string{"kill", "-rounds", "2", "-longest", "500ms"}))
}

func TestCost(t *testing.T) {
	needs(t)
	require.NoError(t, run(t.Context(), []string{"cost", "-quick"}))
}
