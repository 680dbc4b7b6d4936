package storetest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func permitsApart(s *permits) {
	one := permitPolicy(1, time.Second)
	require.True(s, s.acquire(s.permit(one, "a", 1, 0)).Allowed())
	require.True(s, s.acquire(s.permit(one.Named("other"), "a", 1, 0)).Allowed())
	other := s.permit(one, "a", 1, 0)
	other.Key += "2"
	require.True(s, s.acquire(other).Allowed())
	s.release(other)
	require.Equal(s, core.Refused, s.acquire(s.permit(one, "b", 1, 0)).Outcome)
	for _, id := range []string{"a:b", "\u00e4 b", strings.Repeat("x", 128), "1", "("} {
		x := s.permit(one, id, 1, 0)
		x.Key += id
		require.True(s, s.acquire(x).Allowed(), "%q", id)
		require.Empty(s, s.renew(x))
		s.release(x)
		require.True(s, s.acquire(s.permitLike(x, "next")).Allowed(), "%q", id)
	}
}

func (*permits) permitLike(p core.Permit, id string) core.Permit { p.ID = id; return p }
