package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A conn is a gRPC connection that asks as a worker of Envoy does: one loop reads the answers that have come, and writes
// what is asked next. grpc-go's client takes half as much of the processors as a service, and would hide what that takes.
type conn struct {
	in      *bufio.Reader
	out     *bufio.Writer
	framer  *http2.Framer
	encoder *hpack.Encoder
	fields  bytes.Buffer // what encoder has written
	decoder *hpack.Decoder
	status  string // the grpc-status that was read last
	other   int    // answers that were not expected, or were given without a count
	stream  uint32 // the next
	unsaid  uint32 // bytes of answers whose place the service may not use again yet
	waiting map[uint32]time.Time
}

// uncounted is the largest limit_remaining, with which weir answers without its store.
var uncounted = protowire.AppendVarint(nil, math.MaxUint32)

const place = 1 << 30 // bytes

func dial(ctx context.Context, addr string) (*conn, func(), error) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	c := &conn{in: bufio.NewReaderSize(raw, 1<<16), out: bufio.NewWriterSize(raw, 1<<16), stream: 1, waiting: map[uint32]time.Time{}}
	c.framer = http2.NewFramer(c.out, c.in)
	c.framer.SetReuseFrames()
	c.encoder = hpack.NewEncoder(&c.fields)
	c.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == "grpc-status" {
			c.status = f.Value
		}
	})
	_, err = c.out.WriteString(http2.ClientPreface)
	return c, func() { _ = raw.Close() }, errors.Join(err, c.framer.WriteSettings(), c.framer.WriteWindowUpdate(0, place))
}

// play has callers ask by a connection for a while, each again as soon as it has its answer, and returns how long the
// answers took. Those with another code are counted in other, and so are those for which nothing was counted.
func (c *conn) play(callers int, during time.Duration, next func() *rlspb.RateLimitRequest, code rlspb.RateLimitResponse_Code) ([]time.Duration, error) {
	var took []time.Duration
	began := time.Now()
	for range callers {
		if err := c.ask(next()); err != nil {
			return nil, err
		}
	}
	for len(c.waiting) > 0 {
		if c.in.Buffered() == 0 {
			if err := c.out.Flush(); err != nil {
				return nil, err
			}
		}
		stream, got, err := c.read()
		if err != nil {
			return nil, err
		}
		if got != 0 && got != code {
			c.other++
		}
		asked, found := c.waiting[stream]
		if !found {
			continue
		}
		now := time.Now()
		took = append(took, now.Sub(asked))
		delete(c.waiting, stream)
		if now.Sub(began) < during {
			if err := c.ask(next()); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}

// ask writes a request, which leaves with the next flush.
func (c *conn) ask(req *rlspb.RateLimitRequest) error {
	c.fields.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: rlspb.RateLimitService_ShouldRateLimit_FullMethodName},
		{Name: ":authority", Value: "ratelimit"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	} {
		_ = c.encoder.WriteField(f) // a buffer takes all
	}
	message, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 5, 128), req)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(message[1:], uint32(len(message)-5)) //nolint:gosec // small
	c.waiting[c.stream] = time.Now()
	err = errors.Join(
		c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: c.fields.Bytes(), EndHeaders: true}),
		c.framer.WriteData(c.stream, true, message))
	c.stream += 2
	return err
}

// read reads a frame. It returns the stream that has ended by it, if there is one, and the code that was in it, if there
// was one.
func (c *conn) read() (ended uint32, code rlspb.RateLimitResponse_Code, _ error) {
	frame, err := c.framer.ReadFrame()
	if err != nil {
		return 0, 0, err
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return 0, 0, c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return 0, 0, c.framer.WritePing(true, f.Data)
		}
	case *http2.DataFrame:
		data := f.Data()
		if c.unsaid += uint32(len(data)); c.unsaid > place/2 { //nolint:gosec // a frame
			err, c.unsaid = c.framer.WriteWindowUpdate(0, c.unsaid), 0
		}
		if len(data) > 6 && data[5] == 1<<3 { // overall_code is the first field, a small number
			code = rlspb.RateLimitResponse_Code(data[6])
		}
		if bytes.Contains(data, uncounted) {
			code = rlspb.RateLimitResponse_UNKNOWN - 1
		}
		return 0, code, err
	case *http2.HeadersFrame:
		if _, err := c.decoder.Write(f.HeaderBlockFragment()); err != nil || !f.StreamEnded() {
			return 0, 0, err
		}
		if c.status != "0" {
			return 0, 0, fmt.Errorf("grpc-status %s", c.status)
		}
		return f.StreamID, 0, nil
	case *http2.RSTStreamFrame: // grpc-go sends one after its answer if that is faster than the end of the request
		if _, found := c.waiting[f.StreamID]; found {
			return 0, 0, fmt.Errorf("the service ended a stream: %v", f.ErrCode)
		}
	case *http2.GoAwayFrame:
		return 0, 0, fmt.Errorf("the service ended the connection: %v", f.ErrCode)
	}
	return 0, 0, nil
}
