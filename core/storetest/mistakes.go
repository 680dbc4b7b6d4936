package storetest

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func invalid(s *subject) {
	p := policy("10/10s")
	res := s.admit(p, "a", 0, 4)
	good := s.of(p, "a", 0, 4)
	for name, break1 := range map[string]func(*core.Take){
		"negative cost":    func(t *core.Take) { t.Cost = -5 },
		"empty key":        func(t *core.Take) { t.Key = "" },
		"zero policy":      func(t *core.Take) { t.Policy = core.Policy{} },
		"negative time":    func(t *core.Take) { t.Now = -1 },
		"impossible time":  func(t *core.Take) { t.Now = 1<<63 - 1 },
		"several mistakes": func(t *core.Take) { t.Cost, t.Key = -1, "" },
		"negative ahead":   func(t *core.Take) { t.Wait = -1 },
		"debt alone":       func(t *core.Take) { t.Debt = true },
		"at most, ahead":   func(t *core.Take) { t.AtMost, t.Wait = true, time.Second },
	} {
		bad := good
		break1(&bad)
		got, err := s.store.Take(s.Context(), bad)
		require.Error(s, err, name)
		assert.False(s, got.Allowed(), name)
	}
	give := func(r core.Result, units int64, change func(*core.Refund)) error {
		x := core.Refund{Policy: p, Key: good.Key, Receipt: r, Units: units, Now: good.Now}
		change(&x)
		return s.store.Refund(s.Context(), []core.Refund{{Policy: p, Key: good.Key, Receipt: res, Units: 1, Now: good.Now}, x})
	}
	right := func(*core.Refund) {}
	for name, change := range map[string]func(*core.Refund){
		"empty key":       func(x *core.Refund) { x.Key = "" },
		"zero policy":     func(x *core.Refund) { x.Policy = core.Policy{} },
		"negative time":   func(x *core.Refund) { x.Now = -1 },
		"impossible time": func(x *core.Refund) { x.Now = 1<<63 - 1 },
	} {
		require.Error(s, give(res, 0, change), name)
	}
	require.Error(s, s.store.Reset(s.Context(), core.Policy{}, good.Key))
	require.Error(s, s.store.Reset(s.Context(), p, ""))
	refused := s.refuse(p, "a", 0, 7)
	require.Error(s, give(refused, 1, right), "a refusal was not charged")
	require.Error(s, give(core.Result{}, 1, right), "not a receipt")
	require.Error(s, give(core.Result{Outcome: core.Admitted}, 1, right), "no instant")
	require.Error(s, give(res, -1, right))
	require.Error(s, give(res, 5, right), "more than was taken")
	toCredit := func(x *core.Refund) { x.Credit = true }
	require.Error(s, give(res, 1, toCredit), "a credit has no receipt")
	require.Error(s, give(core.Result{}, -1, toCredit))
	s.remains(6, p, "a", 0)
}

func cancelled(s *subject) {
	p := policy("10/10s")
	res := s.admit(p, "a", 0, 4)
	gone, leave := context.WithCancel(s.Context())
	leave()
	late, stop := context.WithTimeout(s.Context(), -1)
	defer stop()
	for want, ctx := range map[error]context.Context{context.Canceled: gone, context.DeadlineExceeded: late} {
		got, err := s.store.Take(ctx, s.of(p, "a", 0, 1))
		require.ErrorIs(s, err, want)
		assert.False(s, got.Allowed())
		require.ErrorIs(s, s.store.Refund(ctx, []core.Refund{s.refundOf(p, "a", 0, res, 4)}), want)
		require.ErrorIs(s, s.store.Reset(ctx, p, s.prefix+"a"), want)
	}
	s.remains(6, p, "a", 0)
}

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
