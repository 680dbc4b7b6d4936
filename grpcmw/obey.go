package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir/internal/pace"
)

// ObeyOptions configures [Obey]. The zero ObeyOptions obey what servers say.
type ObeyOptions struct {
	// Key returns whose limit a call counts against: calls of one key wait in one line. nil means the target of the
	// connection with a hash of the metadata "authorization". Give a function if the server counts otherwise.
	Key func(ctx context.Context, target, method string) string
	// MaxWait is the longest time that a call waits for its turn. 0 means 30 s, and a negative one that it never waits. A
	// call that has waited for so long is sent if the server would admit it, and fails with a [*WaitError] if not.
	MaxWait time.Duration
	// Waiting is the number of calls of one key that may wait at a time. 0 means 1000.
	Waiting int
}

// WaitError is the error of a call that was not sent, because its turn would have come too late or too many calls of its
// key were waiting. errors.As finds it in what [Obeyer.Unary] and [Obeyer.Stream] return.
type WaitError = pace.WaitError

// Obeyer has the client interceptors of [Obey]. It is safe for concurrent use, also by several connections.
type Obeyer struct {
	key  func(ctx context.Context, target, method string) string
	pace *pace.Pace
}

// Obey returns interceptors by which a client keeps to the limits of the servers that it calls: they read what answers
// say of limits in their metadata, and let calls wait until the server will admit them. It fails if a number of the
// options is out of bounds.
//
//	obeyer, err := grpcmw.Obey(grpcmw.ObeyOptions{})
//	...
//	conn, err := grpc.NewClient(target, grpc.WithChainUnaryInterceptor(obeyer.Unary), grpc.WithChainStreamInterceptor(obeyer.Stream))
//
// A server that says nothing of a limit is never waited for. Nothing is sent twice: gRPC's own retries repeat what is
// refused, if they have been configured, within the turn of the call.
func Obey(o ObeyOptions) (*Obeyer, error) {
	if o.Waiting < 0 {
		return nil, fmt.Errorf("grpcmw: Waiting is %d; give the number of calls that may wait, or 0 for 1000", o.Waiting)
	}
	p := pace.Options{MaxWait: o.MaxWait, Waiting: o.Waiting}
	if p.MaxWait == 0 {
		p.MaxWait = 30 * time.Second
	}
	if p.Waiting == 0 {
		p.Waiting = 1000
	}
	y := &Obeyer{key: o.Key, pace: pace.New(p)}
	if y.key == nil {
		seed := maphash.MakeSeed()
		y.key = func(ctx context.Context, target, _ string) string {
			md, _ := metadata.FromOutgoingContext(ctx)
			if lines := md["authorization"]; len(lines) > 0 {
				return target + "#" + strconv.FormatUint(maphash.String(seed, lines[0]), 16)
			}
			return target
		}
	}
	return y, nil
}

// unsent is the error of a call that was not sent, with a status of gRPC for those who look for its code.
type unsent struct{ error }

// Unwrap returns the [*WaitError], or the error of the context.
func (e unsent) Unwrap() error { return e.error }

// GRPCStatus implements the interface by which status.FromError finds the status.
func (e unsent) GRPCStatus() *status.Status {
	st := status.FromContextError(e.error)
	var late *WaitError
	if st.Code() != codes.Unknown || !errors.As(e.error, &late) {
		return st
	}
	st = status.New(codes.ResourceExhausted, late.Error())
	if late.Wait > 0 {
		if detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(late.Wait)}); err == nil {
			return detailed
		}
	}
	return st
}

// Unary is a grpc.UnaryClientInterceptor. A call that is not sent fails with a [*WaitError], whose code is
// RESOURCE_EXHAUSTED, with RetryInfo, or DEADLINE_EXCEEDED if its turn would have come after the deadline of the context;
// or with the error of the context, whose code is DEADLINE_EXCEEDED or CANCELLED.
func (y *Obeyer) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	turn, err := y.pace.Wait(ctx, y.key(ctx, cc.Target(), method), time.Time{})
	if err != nil {
		return unsent{err}
	}
	defer turn.Failed() // does nothing after Answered
	var header, trailer metadata.MD
	err = invoke(ctx, method, req, reply, cc, append(slices.Clip(o), grpc.Header(&header), grpc.Trailer(&trailer))...)
	answered(turn, header, trailer, err)
	return err
}

// Stream is a grpc.StreamClientInterceptor. A stream has its turn until its first message or its end. One that is not
// begun fails as a call of Unary.
func (y *Obeyer) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	turn, err := y.pace.Wait(ctx, y.key(ctx, cc.Target(), method), time.Time{})
	if err != nil {
		return nil, unsent{err}
	}
	ss, err := streamer(ctx, desc, cc, method, o...)
	if err != nil {
		turn.Failed()
		return nil, err
	}
	// The context of ss would not do: asking for it turns gRPC's own retries off.
	return &obeying{ClientStream: ss, turn: turn, forget: context.AfterFunc(ctx, turn.Failed)}, nil
}

// obeying is a stream that ends its turn with the first answer.
type obeying struct {
	grpc.ClientStream
	turn   *pace.Turn
	forget func() bool
	once   sync.Once
}

func (s *obeying) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.once.Do(func() {
		defer s.forget()
		defer s.turn.Failed()
		header, _ := s.Header() // it is there, or never will be
		var trailer metadata.MD
		if err != nil {
			trailer = s.Trailer()
		}
		answered(s.turn, header, trailer, err)
	})
	return err
}

// answered ends a turn with the metadata of an answer, unless there is no answer of the server.
func answered(turn *pace.Turn, header, trailer metadata.MD, err error) {
	if len(header) == 0 && len(trailer) == 0 {
		return
	}
	st := status.Convert(err)
	if errors.Is(err, io.EOF) {
		st = nil
	}
	wait := time.Duration(-1)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok { // which is exact
			wait = max(0, info.GetRetryDelay().AsDuration())
		}
	}
	httpStatus := statusOf(st.Err())
	if st.Code() == codes.Unavailable && wait < 0 && trailer.Get("retry-after") == nil {
		httpStatus = 0 // no refusal: the server goes away
	}
	get := func(name string) []string {
		if lines := header.Get(name); len(lines) > 0 {
			return lines
		}
		return trailer.Get(name)
	}
	a := pace.Read(get, httpStatus, time.Now())
	if a.Refused && wait >= 0 {
		a.RetryAfter = wait
	}
	turn.Answered(a)
}
