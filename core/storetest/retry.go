package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func exactRetry(s *subject) {
	for _, text := range append(withOthers([]string{
		"3/1s", "7/1m burst 3", "1000003/1h burst 2", "1/1d", "2147483648/366d burst 1", "3/1s debt 2",
		"3/1s token-bucket burst 7", "1000003/1h token-bucket burst 2", "2147483648/366d token-bucket burst 1", "7/1m leaky-bucket burst 3",
		"3/1s fixed-window", "7/1m fixed-window aligned", "2147483648/366d fixed-window", "2/1mo fixed-window calendar Asia/Kolkata",
		"3/1s sliding-window", "7/10s sliding-window buckets 7", "2147483648/366d sliding-window buckets 60",
		"3/1s sliding-counter", "999983/1d sliding-counter", "2147483648/366d sliding-counter", "1000/1s sliding-log", "3/366d sliding-log",
	}, "3/1s", "7/1m", "1000/1s", "999983/1d", "2147483648/366d"), tens()...) {
		p := policy(text)
		burst := p.Limits()[0].Burst
		for i := range min(burst, 10) {
			if rest := burst - i; rest > 1 && i == 9 {
				s.admit(p, text, 0, rest)
			} else {
				s.admit(p, text, 0, 1)
			}
		}
		if debt := p.Limits()[0].Debt; debt > 0 {
			s.admit(p, text, 0, debt)
		}
		retry := s.refuse(p, text, 0, 1).RetryAfter.Microseconds()
		require.Positive(s, retry, text)
		early := s.refuse(p, text, retry-1, 1)
		assert.Equal(s, time.Microsecond, early.RetryAfter, "%s: 1 us too early", text)
		s.admit(p, text, retry, 1)
	}
}
