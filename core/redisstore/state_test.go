package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/explaintest"
)

// What Explain says is what Redis then does, for every algorithm. WEIR_EXPLAIN_STATES is the number of states.
func TestExplainAgrees(t *testing.T) { //nolint:paralleltest // it computes
	states := ordered("WEIR_EXPLAIN_STATES", 300)
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"single":  patientClient,
		"cluster": patientClusterClient,
	} {
		t.Run(name, func(t *testing.T) {
			explaintest.Check(t, newStore(t, client(t), redisstore.Options{Deadline: patient}), *seed, states)
		})
	}
}
