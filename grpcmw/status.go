package grpcmw

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// pushbackField is the name of the field that gRPC's own retries obey, in the canonical form of HTTP, as all fields here.
const pushbackField = "Grpc-Retry-Pushback-Ms"

// refusal returns the error by which a call is refused.
func refusal(v *guard.Verdict) error {
	message := strings.ToValidUTF8(strings.TrimRight(string(v.Body), "\n"), "?")
	st := status.New(codeOf(v.Status), message)
	if wait := v.RetryAfter(); wait > 0 {
		if detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
			st = detailed
		}
	}
	return st.Err()
}

// pushback returns for how many milliseconds a client waits before it repeats the call, "-1" if it should not, or "" to
// leave it to the client.
func pushback(v *guard.Verdict) string {
	wait := v.RetryAfter()
	switch {
	case wait > 0:
		ms := (wait + time.Millisecond - 1) / time.Millisecond
		return strconv.FormatInt(int64(min(ms, math.MaxInt32)), 10) // clients read 32 bits
	case v.Result.Outcome == core.Never, errors.Is(v.Err, keyfunc.ErrNoKey):
		return "-1"
	default:
		return ""
	}
}

// codeOf returns the code that stands for the status of a refusal.
func codeOf(httpStatus int) codes.Code {
	switch httpStatus {
	case 400:
		return codes.InvalidArgument
	case 401:
		return codes.Unauthenticated
	case 403:
		return codes.PermissionDenied
	case 404:
		return codes.NotFound
	case 409:
		return codes.Aborted
	case 412:
		return codes.FailedPrecondition
	case 500:
		return codes.Internal
	case 501:
		return codes.Unimplemented
	case 502, 503:
		return codes.Unavailable
	case 504:
		return codes.DeadlineExceeded
	default:
		return codes.ResourceExhausted
	}
}

// statuses are the statuses of HTTP that stand for the codes, as google.rpc.Code has them.
var statuses = [...]int{
	codes.OK: 200, codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504,
	codes.NotFound: 404, codes.AlreadyExists: 409, codes.PermissionDenied: 403, codes.ResourceExhausted: 429,
	codes.FailedPrecondition: 400, codes.Aborted: 409, codes.OutOfRange: 400, codes.Unimplemented: 501,
	codes.Internal: 500, codes.Unavailable: 503, codes.DataLoss: 500, codes.Unauthenticated: 401,
}

// statusOf returns the status that stands for what a handler has returned.
func statusOf(err error) int {
	st, ok := status.FromError(err)
	if !ok { // as gRPC's server does
		st = status.FromContextError(err)
	}
	if code := st.Code(); int(code) < len(statuses) {
		return statuses[code]
	}
	return 500
}

// lost returns an error if the stream has lost its permits, which the stream itself does not notice.
func (s *stream) lost() error {
	if s.ctx.Err() != nil && errors.Is(context.Cause(s.ctx), enforce.ErrPermitLost) {
		return status.Error(codes.Unavailable, "the stream has lost its permit")
	}
	return nil
}
