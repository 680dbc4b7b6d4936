package usage

import (
	"encoding/binary"
	"slices"

	"github.com/weir-go/weir/core/stats"
)

// stream has the counts of a policy by the minute, of which a minute without any takes no room. The zero stream is empty.
type stream struct {
	data  []byte
	first int64 // the minute from which on it has records, if there are any
	end   int64 // the minute after the last record
}

// record has the counts of a minute, or of ten.
type record struct {
	minute int64
	coarse bool // of ten minutes
	stats.UsageCounts
}

// coarseStep is the number of minutes of a coarse record.
const coarseStep = 10

func (r *record) end() int64 {
	if r.coarse {
		return r.minute + coarseStep
	}
	return r.minute + 1
}

// A record is a byte that says which of the counts follow, and whether the minutes since the last record do.
const (
	hasCoarse = 1 << 6
	hasGap    = 1 << 7
)

func fields(c *stats.UsageCounts) [6]*uint64 {
	return [...]*uint64{&c.Admitted, &c.Refused, &c.Trial, &c.Failed, &c.Local, &c.Waited}
}

// add appends a record, which must not begin before the end of the last one.
func (s *stream) add(r record) {
	if r.UsageCounts == (stats.UsageCounts{}) {
		return
	}
	var room [1 + 7*binary.MaxVarintLen64]byte
	b := room[:1]
	if len(s.data) == 0 {
		s.first, s.end = r.minute, r.minute
	}
	if gap := r.minute - s.end; gap > 0 {
		b[0] |= hasGap
		b = binary.AppendUvarint(b, uint64(gap))
	}
	if r.coarse {
		b[0] |= hasCoarse
	}
	for i, n := range fields(&r.UsageCounts) {
		if *n > 0 {
			b[0] |= 1 << i
			b = binary.AppendUvarint(b, *n)
		}
	}
	if need := len(s.data) + len(b); need > cap(s.data) { // with less room to spare than append leaves
		s.data = append(make([]byte, 0, need+max(32, need/16)), s.data...)
	}
	s.data = append(s.data, b...)
	s.end = r.end()
}

// all calls f with each record, the first one first.
func (s *stream) all(f func(record)) {
	at := s.first
	for b := s.data; len(b) > 0; {
		mask := b[0]
		b = b[1:]
		next := func() uint64 {
			n, size := binary.Uvarint(b)
			b = b[size:]
			return n
		}
		r := record{coarse: mask&hasCoarse != 0}
		if mask&hasGap != 0 {
			at += int64(next()) //nolint:gosec // it was an int64
		}
		r.minute = at
		for i, to := range fields(&r.UsageCounts) {
			if mask&(1<<i) != 0 {
				*to = next()
			}
		}
		at = r.end()
		f(r)
	}
}

// rewrite leaves out what ends before a minute, and makes records that end before another one coarse.
func (s *stream) rewrite(kept, fine int64) {
	var next stream
	var ten record // that is being summed up
	s.all(func(r record) {
		if r.end() <= kept {
			return
		}
		begin := r.minute / coarseStep * coarseStep
		if ten.coarse && (begin != ten.minute || r.minute >= fine) {
			next.add(ten)
			ten = record{}
		}
		if r.coarse || begin+coarseStep > fine || begin < next.end {
			next.add(r)
			return
		}
		ten.minute, ten.coarse = begin, true
		ten.Add(r.UsageCounts)
	})
	next.add(ten)
	next.data = slices.Clip(append(make([]byte, 0, len(next.data)+32), next.data...))
	*s = next
}
