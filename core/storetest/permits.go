package storetest

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// ExercisePermits demands of a store what [core.PermitStore] promises. Each test has a
// store of its own from newStore and keys of its own.
func ExercisePermits(t *testing.T, newStore func(*testing.T) core.PermitStore) {
	for _, test := range []struct {
		name string
		run  func(*permits)
	}{
		{"as many as there are", asManyAsThereAre},
		{"by its id alone", byIDAlone},
		{"acquired again", acquiredAgain},
		{"weights", permitWeights},
		{"leases end", leasesEnd},
		{"renewed", renewed},
		{"clock steps back", permitClockStepsBack},
		{"changed numbers", changedPermits},
		{"changed epoch", permitEpochs},
		{"waiting as told admits", waitingForPermits},
		{"keys and policies apart", permitsApart},
		{"mistakes", permitMistakes},
		{"who has left", permitCallerLeft},
		{"by the store's clock", permitsByStoreClock},
		{"many at once", manyPermits},
		{"many in a batch", permitBatch},
		{"shows its permits", permitState},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(&permits{T: t, store: newStore(t), key: rand.Text()})
		})
	}
}

// permits is a store under test and a key.
type permits struct {
	*testing.T
	store core.PermitStore
	key   string
}

// permitPolicy is a policy that has permits and nothing else.
func permitPolicy(n int64, lease time.Duration) core.Policy {
	p, err := core.NewPolicy("permits", core.PolicyOptions{}, core.Limit{Algorithm: core.Concurrent, Burst: n, Lease: lease})
	if err != nil {
		panic(err)
	}
	return p
}

// inEpoch is p in another epoch.
func inEpoch(p core.Policy, epoch int) core.Policy {
	o := p.Options()
	o.Epoch = epoch
	p, err := core.NewPolicy(p.Name(), o, p.Limits()...)
	if err != nil {
		panic(err)
	}
	return p
}

func (s *permits) permit(p core.Policy, id string, weight, at int64) core.Permit {
	return core.Permit{Policy: p, Key: s.key, ID: id, Weight: weight, Now: Epoch + at}
}

func (s *permits) acquire(p core.Permit) core.Result {
	s.Helper()
	res, err := s.store.Acquire(s.Context(), p)
	require.NoError(s, err)
	return res
}

func (s *permits) release(p core.Permit) {
	s.Helper()
	require.NoError(s, s.store.Release(s.Context(), []core.Permit{p}))
}

// renew returns which ids are lost.
func (s *permits) renew(all ...core.Permit) (lost []string) {
	s.Helper()
	gone, err := s.store.Renew(s.Context(), all)
	require.NoError(s, err)
	for _, p := range gone {
		require.Contains(s, all, p, "what is lost is returned as it was given")
		lost = append(lost, p.ID)
	}
	return lost
}

// expect demands a whole Result of one limit of permits.
func (s *permits) expect(want core.Result, got core.Result, at int64) {
	s.Helper()
	want.At = Epoch + at
	want.SetEach(0, core.LimitResult{
		Remaining: want.Remaining, RetryAfter: want.RetryAfter, ResetAfter: want.ResetAfter,
		Refused: !want.Allowed(), Never: want.Outcome == core.Never,
	})
	require.True(s, want.Equal(got), "want %+v, got %+v", want, got)
}

const us = time.Microsecond
