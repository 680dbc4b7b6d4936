package promweir

import (
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/weir-go/weir/observe"
)

// histogram returns the histogram of the point with its classic buckets, and with native ones if they are wanted.
func (s *series) histogram() *dto.Histogram {
	from := s.point.Histogram
	sum := from.Sum.Seconds()
	h := &dto.Histogram{SampleCount: &from.Count, SampleSum: &sum}
	counts := from.Classic(s.Bounds)
	h.Bucket = make([]*dto.Bucket, len(s.Bounds))
	for i := range s.Bounds {
		h.Bucket[i] = &dto.Bucket{UpperBound: &s.Bounds[i], CumulativeCount: &counts[i]}
	}
	if s.native {
		addNative(h, from)
	}
	return h
}

// addNative adds the native buckets. They are written as spans of buckets that follow each other, and as the difference of
// each bucket's count from that of the one before.
func addNative(h *dto.Histogram, from *observe.Histogram) {
	zero, counts := from.Native()
	schema, threshold := int32(observe.NativeSchema), observe.NativeZero
	h.Schema, h.ZeroThreshold, h.ZeroCount = &schema, &threshold, &zero
	var last int64
	next := 0
	for _, i := range slices.Sorted(maps.Keys(counts)) {
		if gap := i - next; len(h.PositiveSpan) == 0 || gap > 0 {
			offset, length := int32(gap), uint32(0) //nolint:gosec // some hundreds
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: &offset, Length: &length})
		}
		*h.PositiveSpan[len(h.PositiveSpan)-1].Length++
		h.PositiveDelta = append(h.PositiveDelta, counts[i]-last)
		last, next = counts[i], i+1
	}
	if len(h.PositiveSpan) == 0 {
		// An empty span is the mark of a native histogram without durations.
		offset, length := int32(0), uint32(0)
		h.PositiveSpan = []*dto.BucketSpan{{Offset: &offset, Length: &length}}
	}
}
