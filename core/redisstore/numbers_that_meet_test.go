package redisstore_test

import (
	"testing"

	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/storetest"
)

// Two sets of numbers that alternate on one key admit no more than the larger ones, or than both where they are apart.
// WEIR_MEETINGS in the environment is how many requests each pair makes.
func TestNumbersThatMeet(t *testing.T) {
	t.Parallel()
	s := newStore(t, sharedServer(t).Client(t), redisstore.Options{Deadline: patient, DenyCache: -1})
	storetest.NumbersThatMeet(t, s, ordered("WEIR_MEETINGS", 500))
}
