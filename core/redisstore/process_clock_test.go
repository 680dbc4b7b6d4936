package redisstore_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// elsewhen is the work of a process with a clock that is wrong by decades.
type elsewhen struct {
	Addr, Prefix string
	Policies     []string
}

// decision is the result of one there.
type decision struct {
	Remaining  int64
	ResetAfter time.Duration
}

const elsewhenVariable = "WEIR_TEST_ELSEWHEN"

// decideElsewhen is the main function of a process that believes in the year 2000, as the first clock of a test under synctest
// does.
func decideElsewhen(t *testing.T, text string) {
	t.Helper()
	var j elsewhen
	require.NoError(t, json.Unmarshal([]byte(text), &j))
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 2000, time.Now().UTC().Year())
		o := unhurried(redisstore.ClientOptions(j.Addr))
		o.MinIdleConns = 0
		rdb := redis.NewClient(o.Simple())
		s := newStore(t, rdb, redisstore.Options{Deadline: patient, Prefix: j.Prefix, DenyCache: -1})
		out := json.NewEncoder(os.NewFile(3, "decisions"))
		for _, policy := range j.Policies {
			res, err := s.Take(t.Context(), core.Take{Policy: core.MustParse("clock: " + policy), Key: "k", Cost: 1})
			require.NoError(t, err)
			require.NoError(t, out.Encode(decision{res.Remaining, res.Each(0).ResetAfter}))
		}
		require.NoError(t, rdb.Close())
	})
}

// A process whose clock is wrong decides like all others: by the server's clock. Also where windows are those of the
// calendar, of which it first believes in others.
func TestClockOfTheProcess(t *testing.T) {
	t.Parallel()
	if text, ok := os.LookupEnv(elsewhenVariable); ok {
		decideElsewhen(t, text)
		return
	}
	j := elsewhen{Addr: redistest.Single(t).Addr(), Prefix: "elsewhen", Policies: []string{
		"10/1h", "10/1h token-bucket", "10/1h leaky-bucket", "10/1h fixed-window", "10/24h fixed-window aligned",
		"10/1mo fixed-window calendar UTC", "10/1h sliding-window", "10/1h sliding-counter", "10/1h sliding-log",
		"10/1h, 12/1d",
	}}
	rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(j.Addr))))
	s := newStore(t, rdb, redisstore.Options{Deadline: patient, Prefix: j.Prefix, DenyCache: -1})
	take := func(policy string) core.Result {
		res, err := s.Take(t.Context(), core.Take{Policy: core.MustParse("clock: " + policy), Key: "k", Cost: 1})
		require.NoError(t, err)
		return res
	}
	left := make(map[string]int64)
	for _, policy := range j.Policies {
		for range 3 {
			left[policy] = take(policy).Remaining
		}
	}
	order, err := json.Marshal(j)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClockOfTheProcess$")
	cmd.Env = append(os.Environ(), elsewhenVariable+"="+string(order))
	cmd.Stderr = os.Stderr
	out, in, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{in}
	require.NoError(t, cmd.Start())
	require.NoError(t, in.Close())
	defer out.Close()
	told := json.NewDecoder(out)
	for _, policy := range j.Policies {
		var there decision
		require.NoError(t, told.Decode(&there), policy)
		assert.Equal(t, left[policy]-1, there.Remaining, policy)
		here := take(policy)
		assert.Equal(t, there.Remaining-1, here.Remaining, policy)
		assert.InDelta(t, here.Each(0).ResetAfter, there.ResetAfter, float64(10*time.Minute), policy)
	}
	require.NoError(t, cmd.Wait())
}
