package promweir

import (
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	addExemplars(h, from)
	if s.native {
		addNative(h, from)
	}
	return h
}

// addExemplars adds the exemplars to the classic buckets. The last bucket, which has no bound, is there only for one.
func addExemplars(h *dto.Histogram, from *observe.Histogram) {
	for i := range from.Exemplars {
		e := &from.Exemplars[i]
		seconds := e.Took.Seconds()
		at := slices.IndexFunc(h.Bucket, func(b *dto.Bucket) bool { return seconds <= b.GetUpperBound() })
		if at < 0 {
			at = len(h.Bucket)
			h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: new(float64), CumulativeCount: &from.Count})
			*h.Bucket[at].UpperBound = math.Inf(1)
		}
		h.Bucket[at].Exemplar = &dto.Exemplar{
			Label: []*dto.LabelPair{label("trace_id", e.TraceID), label("span_id", e.SpanID)}, Value: &seconds, Timestamp: timestamppb.New(e.At),
		}
	}
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

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
