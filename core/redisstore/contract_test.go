package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/lua"
)

var (
	operations = flag.Int("operations", ordered("WEIR_OPERATIONS", 5_000), "by how many random operations the two stores are compared, for each algorithm; WEIR_OPERATIONS in the environment says otherwise")
	seed       = flag.Uint64("seed", rand.Uint64(), "which operations")
)

// ordered is the number in an environment variable.
func ordered(variable string, otherwise int) int {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("%s is %q: give a positive number", variable, text))
	}
	return n
}

// patientClient is one of a server whose connections may all be in use for long.
func patientClient(t *testing.T) redis.UniversalClient {
	return sharedServer(t).Client(t, func(o *redis.Options) {
		o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patient, patient, patient
	})
}

// patientClusterClient is the same of a cluster.
func patientClusterClient(t *testing.T) redis.UniversalClient {
	return sharedCluster(t).Client(t, func(o *redis.ClusterOptions) {
		o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patient, patient, patient
	})
}

// The contract of a store, on a single server, a cluster and a sentinel.
func TestContract(t *testing.T) { //nolint:paralleltest // it computes: what waits for a server beside it would wait for the processor
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"single":  patientClient,
		"cluster": patientClusterClient,
		"sentinel": func(t *testing.T) redis.UniversalClient {
			return sharedSentinel(t).Client(t, func(o *redis.FailoverOptions) {
				o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patient, patient, patient
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := client(t)
			storetest.Exercise(t, func(t *testing.T) core.Store {
				return newStore(t, rdb, redisstore.Options{Deadline: patient})
			})
		})
	}
}

// The scripts and the Go functions agree on every field of every result, and on every
// stored text: for each algorithm alone, and for mixes.
func TestScriptsAgreeWithGo(t *testing.T) { //nolint:paralleltest // it computes: what waits for a server beside it would wait for the processor
	compare := func(name string, algorithms ...core.Algorithm) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(unhurried(redisstore.ClientOptions(redistest.Single(t).Addr())).Simple())
			defer func() { assert.NoError(t, rdb.Close()) }()
			memory, err := core.NewMemory(core.MemoryOptions{})
			require.NoError(t, err)
			scripts := &texts{Store: newStore(t, rdb, redisstore.Options{Deadline: patient}), t: t, rdb: rdb, reference: storetest.Reference()}
			storetest.Compare(t, memory, scripts, *seed, *operations, algorithms...)
			assert.Greater(t, scripts.compared, *operations/100)
			assert.Greater(t, scripts.many, *operations/100, "of takes at once")
		})
	}
	for _, a := range storetest.Algorithms() {
		compare(a.String(), a)
	}
	compare("mixes")
}

// texts is a store on Redis that compares what is stored there with what Step stores
// after the same operations.
type texts struct {
	*redisstore.Store
	t         *testing.T
	rdb       *redis.Client
	reference *storetest.ReferenceStore

	known map[string]bool // kinds whose scripts the server knows

	calls, compared, many int
}

func (s *texts) Take(ctx context.Context, t core.Take) (core.Result, error) {
	res, err := s.Store.Take(ctx, t)
	if want, wantErr := s.reference.Take(ctx, t); (err == nil) != (wantErr == nil) || !res.Equal(want) {
		s.t.Errorf("the script and Step differ:\n script: %+v %v\n Step:   %+v %v", res, err, want, wantErr)
	}
	if err == nil {
		s.compare(ctx, t)
	}
	return res, err
}

// load lets the server know the scripts of some kinds: a take whose script it does not know goes again, after others.
func (s *texts) load(ctx context.Context, kinds string) {
	if s.known[kinds] {
		return
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[kinds] = true
	for _, compose := range []func(string) (string, error){lua.Take, lua.Takes, lua.UpTo} {
		text, err := compose(kinds)
		require.NoError(s.t, err)
		require.NoError(s.t, s.rdb.ScriptLoad(ctx, text).Err())
	}
}

// TakeInOrder asks by TakeMany for as many as are of different keys: their order does not matter.
func (s *texts) TakeInOrder(ctx context.Context, takes []core.Take) (results []core.Result, err error) {
	for len(takes) > 0 {
		n, seen := 0, map[[2]string]bool{}
		for n < len(takes) && !seen[[2]string{takes[n].Policy.Name(), takes[n].Key}] {
			seen[[2]string{takes[n].Policy.Name(), takes[n].Key}] = true
			n++
		}
		all, err := s.TakeMany(ctx, takes[:n])
		if err != nil {
			return nil, err
		}
		for i, t := range takes[:n] {
			if want, wantErr := s.reference.Take(ctx, t); wantErr != nil || !all[i].Equal(want) {
				s.t.Errorf("number %d of %d at once and Step differ:\n script: %+v\n Step:   %+v %v", i+1, n, all[i], want, wantErr)
			}
			if s.compare(ctx, t); n > 1 {
				s.many++
			}
		}
		results, takes = append(results, all...), takes[n:]
	}
	return results, nil
}

func (s *texts) Refund(ctx context.Context, refunds []core.Refund) error {
	err := s.Store.Refund(ctx, refunds)
	if wantErr := s.reference.Refund(ctx, refunds); (err == nil) != (wantErr == nil) {
		s.t.Errorf("the script fails with %v, StepRefund with %v", err, wantErr)
	}
	if err == nil {
		for _, r := range refunds {
			s.compare(ctx, core.Take{Policy: r.Policy, Key: r.Key})
		}
	}
	return err
}

func (s *texts) Reset(ctx context.Context, p core.Policy, key string) error {
	if err := s.reference.Reset(ctx, p, key); err != nil {
		return err
	}
	return s.Store.Reset(ctx, p, key)
}

// compare looks at what is stored every few calls.
func (s *texts) compare(ctx context.Context, t core.Take) {
	if s.calls++; s.calls%8 > 0 {
		return
	}
	key := "weir:1:" + t.Policy.Name() + ":" + t.Policy.Spec().Shape() + ":" + t.Key
	pipe := s.rdb.Pipeline()
	get, ttl := pipe.Get(ctx, key), pipe.PTTL(ctx, key)
	_, _ = pipe.Exec(ctx) // each command tells its own error
	text, err := get.Bytes()
	want := s.reference.Text(t.Policy, t.Key)
	if errors.Is(err, redis.Nil) && want == nil {
		return
	}
	if err != nil || ttl.Err() != nil || want == nil || !bytes.Equal(text, want) {
		s.t.Errorf("%q is stored (%v, %v), not %q, the text of Step", text, err, ttl.Err(), want)
	}
	if left := ttl.Val(); left <= 23*time.Hour { // -1 is no TTL at all; a forced clock adds a day
		s.t.Errorf("%q is stored for %v", text, left)
	}
	s.compared++
}
