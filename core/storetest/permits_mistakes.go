package storetest

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func permitMistakes(s *permits) {
	p := permitPolicy(1, time.Second)
	good := s.permit(p, "a", 1, 0)
	for name, change := range map[string]func(*core.Permit){
		"no policy":         func(p *core.Permit) { p.Policy = core.Policy{} },
		"no permits":        func(p *core.Permit) { p.Policy = core.MustParse("permits: 1/1s") },
		"no key":            func(p *core.Permit) { p.Key = "" },
		"no id":             func(p *core.Permit) { p.ID = "" },
		"an id with #":      func(p *core.Permit) { p.ID = "a#1" },
		"a long id":         func(p *core.Permit) { p.ID = strings.Repeat("x", 129) },
		"an id that breaks": func(p *core.Permit) { p.ID = "a\n" },
		"less than nothing": func(p *core.Permit) { p.Weight = -1 },
		"before the epoch":  func(p *core.Permit) { p.Now = -1 },
		"too late":          func(p *core.Permit) { p.Now = 1<<52 + 1 },
	} {
		bad := good
		change(&bad)
		res, err := s.store.Acquire(s.Context(), bad)
		require.Error(s, err, name)
		require.Zero(s, res, name)
		lost, err := s.store.Renew(s.Context(), []core.Permit{good, bad})
		require.Error(s, err, name)
		require.Empty(s, lost, name)
		require.Error(s, s.store.Release(s.Context(), []core.Permit{good, bad}), name)
	}
	require.True(s, s.acquire(s.permit(p, "b", 1, 0)).Allowed(), "a mistake changes nothing")
}

func permitCallerLeft(s *permits) {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	p := permitPolicy(1, time.Second)
	a := s.permit(p, "a", 1, 0)
	_, err := s.store.Acquire(ctx, a)
	require.ErrorIs(s, err, context.Canceled)
	require.True(s, s.acquire(s.permit(p, "b", 1, 0)).Allowed(), "who has left takes nothing")
	_, err = s.store.Renew(ctx, []core.Permit{a})
	require.ErrorIs(s, err, context.Canceled)
	require.ErrorIs(s, s.store.Release(ctx, []core.Permit{s.permit(p, "b", 1, 0)}), context.Canceled)
	require.Equal(s, core.Refused, s.acquire(a).Outcome)
}
