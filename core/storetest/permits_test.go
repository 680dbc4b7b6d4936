package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/storetest"
)

func TestExercisePermits(t *testing.T) {
	newStore := func(t *testing.T) core.PermitStore {
		m, err := core.NewMemory(core.MemoryOptions{})
		require.NoError(t, err)
		return m
	}
	storetest.ExercisePermits(t, newStore)
	storetest.ComparePermits(t, newStore(t), newStore(t), 1, 10_000)
}
