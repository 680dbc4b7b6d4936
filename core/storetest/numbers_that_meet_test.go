package storetest_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/race"
)

// WEIR_MEETINGS in the environment is the number of requests that alternate between each pair of numbers.
func TestNumbersThatMeet(t *testing.T) {
	requests := 5000
	if race.Enabled { // nothing here is concurrent
		requests = 500
	}
	if text := os.Getenv("WEIR_MEETINGS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, "WEIR_MEETINGS")
		requests = n
	}
	storetest.NumbersThatMeet(t, memory(t), requests)
}
