package envoyrls

import (
	"math"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The bounds of a request.
const (
	maxDescriptors = 64
	maxEntries     = 16      // of a descriptor
	maxEntry       = 4 << 10 // bytes of a key and its value, and of a domain
	maxRequest     = 1 << 20 // bytes of all texts together
)

// errDomain and errDescriptors have the codes and the texts of envoyproxy/ratelimit.
var (
	errDomain      = status.Error(codes.Unknown, "rate limit domain must not be empty")
	errDescriptors = status.Error(codes.Unknown, "rate limit descriptor list must not be empty")
)

// check returns what is wrong with a request, as a status of gRPC, or nil.
func check(r *rlspb.RateLimitRequest) error {
	descriptors := r.GetDescriptors()
	switch {
	case r.GetDomain() == "":
		return errDomain
	case len(descriptors) == 0:
		return errDescriptors
	case len(r.GetDomain()) > maxEntry:
		return status.Errorf(codes.InvalidArgument, "the domain has %d bytes; give at most %d", len(r.GetDomain()), maxEntry)
	case len(descriptors) > maxDescriptors:
		return status.Errorf(codes.InvalidArgument, "the request has %d descriptors; give at most %d", len(descriptors), maxDescriptors)
	}
	total := 0
	for i, d := range descriptors {
		if n := len(d.GetEntries()); n > maxEntries {
			return status.Errorf(codes.InvalidArgument, "descriptor %d has %d entries; give at most %d", i+1, n, maxEntries)
		}
		for _, e := range d.GetEntries() {
			n := len(e.GetKey()) + len(e.GetValue())
			if total += n; n > maxEntry {
				return status.Errorf(codes.InvalidArgument, "an entry of descriptor %d has %d bytes; give at most %d for its key and value", i+1, n, maxEntry)
			}
		}
		if d.GetLimit() != nil {
			if err := overrideOf(d.GetLimit()).check(i); err != nil {
				return err
			}
		}
	}
	if total > maxRequest {
		return status.Errorf(codes.InvalidArgument, "the entries of the request have %d bytes; give at most %d", total, maxRequest)
	}
	return nil
}

// maxCost is more than any limit admits at once.
const maxCost = 1 << 33

// costOf returns the number of hits of a descriptor, and whether it is the descriptor's own.
func costOf(r *rlspb.RateLimitRequest, d *extpb.RateLimitDescriptor) (cost int64, own bool) {
	if hits := d.GetHitsAddend(); hits != nil {
		return int64(min(hits.GetValue(), maxCost)), true //nolint:gosec // it fits
	}
	return max(1, int64(r.GetHitsAddend())), false
}

// count32 returns n as the protocol has counts.
func count32(n int64) uint32 { return uint32(max(0, min(n, math.MaxUint32))) } //nolint:gosec // it fits
