package storetest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func policies(s *subject) {
	p := policy("2/10s")
	for _, other := range []core.Policy{p.Named("Storetest"), p.Named("storetest.g"), p.Named("storetest-2"), p.Named("s")} {
		s.admit(p, other.Name(), 0, 2)
		s.remains(2, other, other.Name(), 0)
		s.admit(other, other.Name(), 0, 1)
		s.remains(1, other, other.Name(), 0)
		s.remains(0, p, other.Name(), 0)
		require.NoError(s, s.store.Reset(s.Context(), other, s.prefix+other.Name()))
		s.remains(0, p, other.Name(), 0)
	}
	// Another shape has a state of its own, under the same name too.
	s.admit(policy("2/10s, 5/1h"), "shape", 0, 1)
	s.remains(2, p, "shape", 0)
	for _, text := range tens() {
		s.remains(10, policy(text), "shapes", 0)
		s.admit(policy(text), "shapes", 0, 10)
	}
}

func hostileKeys(s *subject) {
	long := strings.Repeat("x", 10<<20)
	keys := []string{
		"a", "A", "a ", " a", "a\x00", "a\x00b", "a\r\nb", "a\nb", "{a}", "{", "}", "{}", "a{", "a%7B", "a%7b", "a%257B",
		"~a", "%7Ea", "~", "\xff", "\xfe", "\xff\xfe", "\ufffd", "\u00e9", "e\u0301", "a:b", "a:b:", "a;b", "a&b=c", "a%26b%3Dc",
		"none", "*", "?", "[a]", "\\", "../a", "☃", strings.Repeat("k", 128), strings.Repeat("k", 129), strings.Repeat("k", 130),
		long + "1", long + "2",
	}
	p := policy("2/1h")
	for _, left := range []int64{1, 0} {
		for _, key := range keys {
			require.Equal(s, left, s.admit(p, key, 0, 1).Remaining, "%.20q of %d bytes shares its count with another key", key, len(key))
		}
	}
	for _, key := range keys {
		s.refuse(p, key, 0, 1)
		require.NoError(s, s.store.Reset(s.Context(), p, s.prefix+key))
	}
	for _, key := range keys { // a prefix is a key of its own, and so is no prefix
		s.remains(2, p, key, 0)
	}
	t := s.of(p, "", 0, 1)
	for _, key := range []string{"~x", "{", "\x00", "\xff", ":"} {
		t.Key = key + s.prefix
		res, err := s.store.Take(s.Context(), t)
		require.NoError(s, err)
		require.Equal(s, int64(1), res.Remaining, "%q", t.Key)
	}
}

func reset(s *subject) {
	for _, text := range append([]string{"10/10s, 100/1h", "10/10s sliding-log, 100/1d fixed-window calendar UTC"}, tens()...) {
		p, a, b := policy(text), text+" a", text+" b"
		s.admit(p, a, 0, 10)
		s.admit(p, b, 0, 10)
		require.NoError(s, s.store.Reset(s.Context(), p, s.prefix+a))
		require.NoError(s, s.store.Reset(s.Context(), p, s.prefix+text+" nobody"))
		res := s.take(p, a, 0, 0)
		assert.Equal(s, int64(10), res.Remaining)
		assert.Zero(s, res.ResetAfter)
		s.remains(0, p, b, 0)
	}
}

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
