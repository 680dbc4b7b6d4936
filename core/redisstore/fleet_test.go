package redisstore_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// job is the work of a process of a fleet: so many goroutines call so often for each
// policy, either to take a unit or to wait for one.
type job struct {
	Addrs             []string
	Prefix            string // of the keys
	Policies          []string
	Then              []string // the numbers that each of Policies changes to after half of the calls, if any
	Goroutines, Calls int
	Wait              bool
}

// answer is one decision, and when the caller went on, by the clock that the server
// shares with the test.
type answer struct {
	Policy string
	Result core.Result
	Woke   int64
}

const jobVariable = "WEIR_TEST_JOB"

// inFleet does the job of the process, if it is one of a fleet, and reports whether it is. A test that has a fleet
// begins with it, because the processes run the same test.
func inFleet(t *testing.T) bool {
	t.Helper()
	text, ok := os.LookupEnv(jobVariable)
	if !ok {
		return false
	}
	var j job
	require.NoError(t, json.Unmarshal([]byte(text), &j))
	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(j.Addrs...)))
	defer rdb.Close()
	store := &recorder{Store: newStore(t, rdb, redisstore.Options{Deadline: patient, Prefix: j.Prefix})}
	var all sync.WaitGroup
	for i, text := range j.Policies {
		numbers := new(atomic.Pointer[follow.Set])
		limiter, err := enforce.New(store, core.MustParse(text), enforce.Options{Source: numbers})
		require.NoError(t, err)
		for range j.Goroutines {
			all.Go(func() {
				for n := range j.Calls {
					if n == j.Calls/2 && j.Then != nil {
						numbers.Store(&follow.Set{Policies: map[string]string{limiter.Policy().Name(): j.Then[i]}})
					}
					call := &answer{Policy: text}
					ctx := context.WithValue(t.Context(), callKey{}, call)
					if j.Wait {
						assert.NoError(t, limiter.Wait(ctx, "k", 1))
					} else {
						_, err := limiter.Allow(ctx, "k")
						assert.NoError(t, err)
					}
					call.Woke = time.Now().UnixMicro()
					store.done(call)
				}
			})
		}
	}
	all.Wait()
	require.NoError(t, json.NewEncoder(os.NewFile(3, "answers")).Encode(store.answers))
	return true
}

// callKey is the context key of the answer that a call is to be noted in.
type callKey struct{}

// recorder notes what the store has answered.
type recorder struct {
	*redisstore.Store
	mu      sync.Mutex
	answers []answer
}

func (r *recorder) Take(ctx context.Context, t core.Take) (core.Result, error) {
	res, err := r.Store.Take(ctx, t)
	ctx.Value(callKey{}).(*answer).Result = res
	return res, err
}

func (r *recorder) done(a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, *a)
}

// fleet runs a job in so many processes at once, and something else meanwhile.
func fleet(t *testing.T, processes int, j job, meanwhile func()) (answers []answer) {
	t.Helper()
	text, err := json.Marshal(j)
	require.NoError(t, err)
	test, _, _ := strings.Cut(t.Name(), "/")
	var running []*exec.Cmd
	var outs []*os.File
	for range processes {
		out, in, err := os.Pipe()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+test+"$") //nolint:gosec // this program
		cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
		cmd.ExtraFiles = []*os.File{in}
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		require.NoError(t, in.Close())
		running, outs = append(running, cmd), append(outs, out)
	}
	meanwhile()
	for i, cmd := range running {
		var own []answer
		assert.NoError(t, json.NewDecoder(outs[i]).Decode(&own))
		assert.NoError(t, outs[i].Close())
		assert.NoError(t, cmd.Wait())
		answers = append(answers, own...)
	}
	require.Len(t, answers, processes*len(j.Policies)*j.Goroutines*j.Calls)
	return answers
}

// Three processes admit exactly the bound together, by every algorithm, on a single
// server and in a Cluster whose slots move meanwhile.
func TestFleetAdmitsExactly(t *testing.T) { //nolint:paralleltest // it computes: what waits for a server beside it would wait for the processor
	if inFleet(t) {
		return
	}
	policies := []string{
		"gcra: 60/366d", "debt: 60/366d debt 1", "tokens: 60/366d token-bucket", "leaky: 60/366d leaky-bucket", "fixed: 60/366d fixed-window",
		"aligned: 60/366d fixed-window aligned", "month: 60/1mo fixed-window calendar Europe/Berlin",
		"sliding: 60/366d sliding-window", "counter: 60/366d sliding-counter", "log: 60/366d sliding-log",
		"mix: 60/366d, 80/366d sliding-log, 70/366d fixed-window",
	}
	check := func(t *testing.T, answers []answer) {
		t.Helper()
		admitted := map[string]int{}
		for _, a := range answers {
			if a.Result.Allowed() {
				admitted[a.Policy]++
			}
		}
		for _, p := range policies {
			want := 60
			if p == policies[1] {
				want++ // the last one borrows
			}
			assert.Equal(t, want, admitted[p], p)
		}
	}
	j := job{Prefix: rand.Text(), Policies: policies, Goroutines: 4, Calls: 8} // 96 of each
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		j := j
		j.Addrs = []string{sharedServer(t).Addr()}
		check(t, fleet(t, 3, j, func() {}))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		j := j
		cluster := sharedCluster(t)
		j.Addrs = cluster.Addrs()
		check(t, fleet(t, 3, j, func() {
			for _, key := range []string{":1:gcra:g366d:k", ":1:mix:g366dfx:k"} {
				cluster.Migrating(t, j.Prefix+key)()
			}
		}))
	})
}

// Three processes that wait for one key are served in the order in which they came, at
// the rate, and ask the server once each.
func TestFleetQueues(t *testing.T) {
	t.Parallel()
	if inFleet(t) {
		return
	}
	for name, policy := range map[string]string{
		"gcra":         "gcra: 50/1s burst 1; wait 1m",
		"token-bucket": "tokens: 1/20ms token-bucket; wait 1m",
		"leaky-bucket": "leaky: 50/1s leaky-bucket burst 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Single(t)
			j := job{Addrs: []string{server.Addr()}, Policies: []string{policy}, Goroutines: 8, Calls: 1, Wait: true}
			fleet(t, 1, job{Addrs: j.Addrs, Policies: []string{"warm-" + policy}, Goroutines: 1, Calls: 1, Wait: true}, func() {})
			server.ResetStats(t)
			answers := fleet(t, 3, j, func() {})
			assert.LessOrEqual(t, server.CommandStats(t)["evalsha"], int64(len(answers)), "one call each at most")
			turn := func(a answer) int64 { return a.Result.At + a.Result.Delay.Microseconds() }
			slices.SortFunc(answers, func(a, b answer) int {
				return cmp.Or(cmp.Compare(a.Result.At, b.Result.At), cmp.Compare(turn(a), turn(b)))
			})
			for i, a := range answers {
				assert.GreaterOrEqual(t, a.Woke, turn(a), "nobody goes on before its turn")
				if i > 0 {
					assert.GreaterOrEqual(t, turn(a)-turn(answers[i-1]), int64(20_000), "who came later has a later turn, and the rate is kept")
				}
			}
		})
	}
}
