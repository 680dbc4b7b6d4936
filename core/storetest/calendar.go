package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func calendar(s *subject) {
	for _, c := range []struct{ align, from, end string }{
		{"1d fixed-window calendar UTC", "2027-01-15T08:00:00Z", "2027-01-16T00:00:00Z"},
		{"1d fixed-window calendar Asia/Kolkata", "2027-01-15T18:29:59Z", "2027-01-15T18:30:00Z"},
		{"1d fixed-window calendar Europe/Berlin", "2027-03-28T00:00:00+01:00", "2027-03-29T00:00:00+02:00"},       // 23 hours
		{"1d fixed-window calendar Europe/Berlin", "2027-10-31T00:00:00+02:00", "2027-11-01T00:00:00+01:00"},       // 25 hours
		{"1d fixed-window calendar America/Havana", "2027-03-14T01:00:00-04:00", "2027-03-15T00:00:00-04:00"},      // a day without a midnight
		{"1d fixed-window calendar Australia/Lord_Howe", "2027-04-04T01:45:00+11:00", "2027-04-05T00:00:00+10:30"}, // half an hour longer
		{"7d fixed-window calendar Europe/Berlin", "2027-01-17T12:00:00+01:00", "2027-01-18T00:00:00+01:00"},       // from Monday
		{"1mo fixed-window calendar Europe/Berlin", "2028-02-29T23:59:59+01:00", "2028-03-01T00:00:00+01:00"},
		{"1h fixed-window calendar Asia/Kolkata", "2027-01-15T08:29:00Z", "2027-01-15T08:30:00Z"},
		{"1m fixed-window calendar UTC", "2027-01-15T08:00:01Z", "2027-01-15T08:01:00Z"},
	} {
		instant := func(text string) int64 {
			at, err := time.Parse(time.RFC3339, text)
			require.NoError(s, err)
			return at.UnixMicro() - Epoch
		}
		p, from, end := policy("2/"+c.align), instant(c.from), instant(c.end)
		key := c.align + c.from
		assert.Equal(s, end-from, s.admit(p, key, from, 2).ResetAfter.Microseconds(), key)
		assert.Equal(s, time.Microsecond, s.refuse(p, key, end-1, 1).RetryAfter, key)
		s.admit(p, key, end, 2)
		s.refuse(p, key, end, 1)
	}
}
