package storetest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
