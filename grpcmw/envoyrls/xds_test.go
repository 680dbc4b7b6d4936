package envoyrls

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/internal/redistest"
)

type adsStream = discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesServer

// ads is a server of the configuration. Each stream is the test's, until it says how the stream ends.
type ads struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer

	addr    string
	server  *grpc.Server
	streams chan *adsCall
}

type adsCall struct {
	adsStream

	end chan error
}

func (a *ads) StreamAggregatedResources(stream adsStream) error {
	call := &adsCall{stream, make(chan error, 1)}
	select {
	case a.streams <- call:
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	select {
	case err := <-call.end:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// startADS starts a server, at an address of an earlier one or "127.0.0.1:0".
func startADS(t *testing.T, addr string, options ...grpc.ServerOption) *ads {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	require.NoError(t, err)
	a := &ads{addr: listener.Addr().String(), server: grpc.NewServer(options...), streams: make(chan *adsCall)}
	discoverypb.RegisterAggregatedDiscoveryServiceServer(a.server, a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.server.Serve(listener) // it ends by Stop
	}()
	t.Cleanup(func() {
		a.server.Stop()
		<-done
	})
	return a
}

const patience = time.Minute

// stream returns the next stream, with its first request.
func (a *ads) stream(t *testing.T) (*adsCall, *discoverypb.DiscoveryRequest) {
	t.Helper()
	select {
	case call := <-a.streams:
		request, err := call.Recv()
		require.NoError(t, err)
		return call, request
	case <-time.After(patience):
		require.Fail(t, "nobody has asked")
		return nil, nil
	}
}

// send sends resources and returns what the client says to them.
func (c *adsCall) send(t *testing.T, version, nonce string, resources ...proto.Message) *discoverypb.DiscoveryRequest {
	t.Helper()
	response := &discoverypb.DiscoveryResponse{VersionInfo: version, Nonce: nonce, TypeUrl: configType}
	for _, m := range resources {
		resource, ok := m.(*anypb.Any)
		if !ok {
			var err error
			resource, err = anypb.New(m)
			require.NoError(t, err)
		}
		response.Resources = append(response.Resources, resource)
	}
	require.NoError(t, c.Send(response))
	request, err := c.Recv()
	require.NoError(t, err)
	assert.Equal(t, configType, request.GetTypeUrl())
	assert.Equal(t, nonce, request.GetResponseNonce())
	return request
}

// followed is a client whose loads are noted.
type followed struct {
	loads chan []domainConfig
	said  *logtest.Log
}

func followXDS(t *testing.T, x XDS) *followed {
	t.Helper()
	f := &followed{make(chan []domainConfig, 100), new(logtest.Log)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- x.follow(ctx, slog.New(slog.NewTextHandler(f.said, nil)), func(documents []domainConfig) error {
			for _, d := range documents {
				if strings.HasPrefix(d.domain, "bad") {
					return errors.New(d.source + ": the domain is " + d.domain)
				}
			}
			f.loads <- documents
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return f
}

func (f *followed) loaded(t *testing.T) []domainConfig {
	t.Helper()
	select {
	case documents := <-f.loads:
		return documents
	case <-time.After(patience):
		require.Fail(t, "nothing was loaded", "%v", f.said)
		return nil
	}
}

// quick are waits for a test.
func quick(addr string) XDS {
	return XDS{Server: addr, Connect: time.Millisecond, Wait: time.Millisecond, MaxWait: 10 * time.Millisecond, Jitter: .5}
}

func domain(name string) *configpb.RateLimitConfig {
	return &configpb.RateLimitConfig{Name: "of " + name, Domain: name}
}

func TestXDS(t *testing.T) {
	t.Parallel()
	a := startADS(t, "127.0.0.1:0")
	x := quick(a.addr)
	x.Node, x.NodeMetadata, x.Headers = "node-7", map[string]string{"zone": "a"}, map[string]string{"X-Token": "secret"}
	f := followXDS(t, x)

	c, first := a.stream(t)
	assert.Equal(t, configType, first.GetTypeUrl())
	assert.Empty(t, first.GetVersionInfo())
	assert.Empty(t, first.GetResponseNonce())
	assert.Empty(t, first.GetResourceNames(), "all that there are")
	assert.Equal(t, "node-7", first.GetNode().GetId())
	assert.Equal(t, "a", first.GetNode().GetMetadata().GetFields()["zone"].GetStringValue())
	header, _ := metadata.FromIncomingContext(c.Context())
	assert.Equal(t, []string{"secret"}, header.Get("x-token"))

	// The whole of a configuration.
	metadata, err := structpb.NewStruct(map[string]any{"team": "web"})
	require.NoError(t, err)
	ack := c.send(t, "v1", "n1", &configpb.RateLimitConfig{Name: "one", Domain: "d", Descriptors: []*configpb.RateLimitDescriptor{
		{
			Key: "a", Value: "b", ShadowMode: true, DetailedMetric: true, QuotaMode: true, Metadata: metadata,
			RateLimit: &configpb.RateLimitPolicy{
				Unit: configpb.RateLimitUnit_WEEK, RequestsPerUnit: 7, Name: "n", Replaces: []*configpb.RateLimitReplace{{Name: "m"}},
			},
			Descriptors: []*configpb.RateLimitDescriptor{{Key: "c", RateLimit: &configpb.RateLimitPolicy{Unlimited: true}}},
		},
		{Key: "e"},
	}})
	assert.Equal(t, "v1", ack.GetVersionInfo())
	assert.Nil(t, ack.GetErrorDetail())
	assert.Equal(t, []domainConfig{{source: "one", domain: "d", descriptors: []descriptorConfig{
		{
			key: "a", value: "b", shadow: true, detailedMetric: true, quota: true, metadata: map[string]any{"team": "web"},
			limit:       &limitConfig{unit: "WEEK", requests: 7, name: "n", replaces: []string{"m"}},
			descriptors: []descriptorConfig{{key: "c", limit: &limitConfig{unlimited: true}, descriptors: []descriptorConfig{}}},
		},
		{key: "e", descriptors: []descriptorConfig{}},
	}}}, f.loaded(t))

	// A NACK has the version before, and the reason.
	nack := c.send(t, "v2", "n2", domain("good"), domain("bad"))
	assert.Equal(t, "v1", nack.GetVersionInfo())
	assert.Equal(t, int32(codes.InvalidArgument), nack.GetErrorDetail().GetCode())
	assert.Equal(t, "of bad: the domain is bad", nack.GetErrorDetail().GetMessage())
	assert.Len(t, f.said.With("of bad: the domain is bad"), 1)

	// A long reason is cut, where a letter ends.
	nack = c.send(t, "v2", "n2b", domain("bad"+strings.Repeat("é", maxDetail)))
	assert.True(t, strings.HasPrefix(nack.GetErrorDetail().GetMessage(), "of badé"))
	assert.InDelta(t, maxDetail, len(nack.GetErrorDetail().GetMessage()), 2)

	// Garbage, and what is of another type.
	nack = c.send(t, "v3", "n3", &anypb.Any{TypeUrl: configType, Value: []byte("\xff\xff\xff")})
	assert.Equal(t, "v1", nack.GetVersionInfo())
	assert.Contains(t, nack.GetErrorDetail().GetMessage(), "resource 1: ")
	nack = c.send(t, "v4", "n4", domain("good"), &anypb.Any{TypeUrl: "type.googleapis.com/other"})
	assert.Contains(t, nack.GetErrorDetail().GetMessage(), `resource 2: found the type "type.googleapis.com/other"`)
	require.NoError(t, c.Send(&discoverypb.DiscoveryResponse{VersionInfo: "v9", Nonce: "n9", TypeUrl: "type.googleapis.com/other"}))

	// After that a good one is taken up again, with a wrapper as well; and one without a limit.
	inner, err := anypb.New(domain("wrapped"))
	require.NoError(t, err)
	ack = c.send(t, "v5", "n5", &discoverypb.Resource{Name: "w", Resource: inner})
	assert.Equal(t, "v5", ack.GetVersionInfo())
	assert.Nil(t, ack.GetErrorDetail())
	assert.Equal(t, "wrapped", f.loaded(t)[0].domain)
	ack = c.send(t, "v6", "n6")
	assert.Equal(t, "v6", ack.GetVersionInfo())
	assert.Empty(t, f.loaded(t))

	// The stream ends, by itself and with an error. The next begins with the version, but without a nonce, which is of a stream.
	for _, end := range []error{nil, status.Error(codes.Internal, "broken")} {
		c.end <- end
		c, first = a.stream(t)
		assert.Equal(t, "v6", first.GetVersionInfo())
		assert.Empty(t, first.GetResponseNonce())
		assert.Equal(t, "node-7", first.GetNode().GetId())
		assert.Equal(t, "v6", c.send(t, "v6", "n1").GetVersionInfo())
		f.loaded(t)
	}
	assert.Empty(t, f.said.With("secret"))

	// The server is another one, at the same place.
	a.server.Stop()
	require.Eventually(t, func() bool { return len(f.said.With("is not there")) > 5 }, patience, time.Millisecond)
	b := startADS(t, a.addr)
	c, first = b.stream(t)
	assert.Equal(t, "v6", first.GetVersionInfo())
	assert.Equal(t, "v7", c.send(t, "v7", "n1", domain("again")).GetVersionInfo())
	assert.Equal(t, "again", f.loaded(t)[0].domain)
}

// A message that is too large ends the stream, and the next one may be smaller. One that is allowed may be large.
func TestXDSLarge(t *testing.T) {
	t.Parallel()
	large := &configpb.RateLimitConfig{Domain: strings.Repeat("x", 10<<20)}
	a := startADS(t, "127.0.0.1:0")
	f := followXDS(t, quick(a.addr))
	c, _ := a.stream(t)
	resource, err := anypb.New(large)
	require.NoError(t, err)
	require.NoError(t, c.Send(&discoverypb.DiscoveryResponse{VersionInfo: "v1", Nonce: "n1", TypeUrl: configType, Resources: []*anypb.Any{resource}}))
	c, _ = a.stream(t)
	assert.Equal(t, "v2", c.send(t, "v2", "n2", domain("small")).GetVersionInfo())
	assert.Equal(t, "small", f.loaded(t)[0].domain)
	assert.NotEmpty(t, f.said.With("larger than max"))

	a = startADS(t, "127.0.0.1:0")
	x := quick(a.addr)
	x.MaxMessage = 11 << 20
	f = followXDS(t, x)
	c, _ = a.stream(t)
	assert.Equal(t, "v1", c.send(t, "v1", "n1", large).GetVersionInfo())
	assert.Len(t, f.loaded(t)[0].domain, 10<<20)
}

// A server that answers each NACK with the same again is slowed down.
func TestXDSRefusesSlowly(t *testing.T) {
	t.Parallel()
	a := startADS(t, "127.0.0.1:0")
	x := quick(a.addr)
	x.Connect = 50 * time.Millisecond
	f := followXDS(t, x)
	c, _ := a.stream(t)
	const times = 5
	began := time.Now()
	for range times {
		assert.NotNil(t, c.send(t, "v", "n", domain("bad")).GetErrorDetail())
	}
	assert.GreaterOrEqual(t, time.Since(began), (times-1)*x.Connect)
	assert.Nil(t, c.send(t, "v", "n", domain("good")).GetErrorDetail())
	f.loaded(t)
}

// The follower ends at once, whatever it waits for: a server that is not there, one that says nothing, the next NACK.
func TestXDSEnds(t *testing.T) {
	t.Parallel()
	never := XDS{Connect: time.Hour, Wait: time.Hour, MaxWait: time.Hour}
	for name, until := range map[string]func(t *testing.T, x XDS, a *ads) *followed{
		"away": func(t *testing.T, x XDS, a *ads) *followed {
			a.server.Stop()
			f := followXDS(t, x)
			require.Eventually(t, func() bool { return len(f.said.With("is not there")) > 0 }, patience, time.Millisecond)
			return f
		},
		"silent": func(t *testing.T, x XDS, a *ads) *followed {
			f := followXDS(t, x)
			a.stream(t)
			return f
		},
		"refused": func(t *testing.T, x XDS, a *ads) *followed {
			f := followXDS(t, x)
			c, _ := a.stream(t)
			c.send(t, "v", "n", domain("bad"))
			resource, err := anypb.New(domain("bad"))
			require.NoError(t, err)
			require.NoError(t, c.Send(&discoverypb.DiscoveryResponse{TypeUrl: configType, Resources: []*anypb.Any{resource}}))
			require.Eventually(t, func() bool { return len(f.said.With("cannot be used")) == 2 }, patience, time.Millisecond)
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, x := startADS(t, "127.0.0.1:0"), never
			x.Server = a.addr
			until(t, x, a) // and the Cleanup of followXDS waits for its end
		})
	}
}

// With TLS the server must have a certificate of an authority that is known, for the name that was asked for.
func TestXDSTLS(t *testing.T) {
	t.Parallel()
	own := redistest.NewCertificate(t)
	secure, err := credentials.NewServerTLSFromFile(own.CertFile, own.KeyFile)
	require.NoError(t, err)
	a := startADS(t, "127.0.0.1:0", grpc.Creds(secure))
	for name, good := range map[string]bool{"localhost": true, "other.example": false} {
		x := quick(a.addr)
		x.TLS, err = redistest.Trust(own.CertFile)
		require.NoError(t, err)
		x.TLS.ServerName = name
		f := followXDS(t, x)
		if !good {
			require.Eventually(t, func() bool { return len(f.said.With("not "+name)) > 0 }, patience, time.Millisecond, "%v", f.said)
			continue
		}
		c, _ := a.stream(t)
		c.send(t, "v", "n", domain(name))
		assert.Equal(t, name, f.loaded(t)[0].domain)
	}
}

func TestXDSMistakes(t *testing.T) {
	t.Parallel()
	s := &Server{}
	require.ErrorContains(t, s.FollowXDS(t.Context(), XDS{}), "there is no Server")
	require.ErrorContains(t, s.FollowXDS(t.Context(), XDS{Server: "dns:///%"}), "the server of the configuration")
}

// A wait is never nothing, and never longer than the longest.
func TestXDSWait(t *testing.T) {
	t.Parallel()
	x := XDS{Jitter: .5}.withDefaults()
	assert.Equal(t, 3*time.Second, x.wait(0, false, .5))
	assert.Equal(t, 10*time.Second, x.wait(0, true, .5))
	assert.Equal(t, 5*time.Second, x.wait(0, true, 0))
	assert.Equal(t, 24*time.Second, x.wait(3, false, .5))
	assert.Equal(t, time.Minute, x.wait(1000, true, 1))
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.Int64Range(1, int64(10*time.Hour))
		x := XDS{
			Connect: time.Duration(times.Draw(t, "connect")), Wait: time.Duration(times.Draw(t, "wait")),
			MaxWait: time.Duration(times.Draw(t, "max")), Jitter: rapid.Float64Range(-1, 2).Draw(t, "jitter"),
		}.withDefaults()
		wait := x.wait(rapid.IntRange(0, 1<<40).Draw(t, "failures"), rapid.Bool().Draw(t, "answered"), rapid.Float64Range(0, 1).Draw(t, "random"))
		assert.Positive(t, wait)
		assert.LessOrEqual(t, wait, x.MaxWait)
	})
}

// drawConfig draws a configuration that has no mistakes as far as its parts are concerned. A limit is not 0, which would be
// left out of its JSON.
func drawConfig(t *rapid.T) *configpb.RateLimitConfig {
	text := rapid.StringMatching(`[a-zé*" :_.7#-]{1,6}`)
	var descriptors func(depth int) []*configpb.RateLimitDescriptor
	descriptors = func(depth int) (all []*configpb.RateLimitDescriptor) {
		for range rapid.IntRange(0, 3-depth).Draw(t, "descriptors") {
			d := &configpb.RateLimitDescriptor{
				Key: text.Draw(t, "key"), ShadowMode: rapid.Bool().Draw(t, "shadow"), DetailedMetric: rapid.Bool().Draw(t, "detailed"),
			}
			if rapid.Bool().Draw(t, "has a value") {
				d.Value = text.Draw(t, "value")
			}
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				d.RateLimit = &configpb.RateLimitPolicy{
					Unit: configpb.RateLimitUnit(rapid.Int32Range(1, 7).Draw(t, "unit")), RequestsPerUnit: rapid.Uint32Min(1).Draw(t, "requests"),
				}
			case 1:
				d.RateLimit = &configpb.RateLimitPolicy{Unlimited: true, Name: text.Draw(t, "name")}
				for range rapid.IntRange(0, 2).Draw(t, "replaces") {
					d.RateLimit.Replaces = append(d.RateLimit.Replaces, &configpb.RateLimitReplace{Name: text.Draw(t, "replaced")})
				}
			}
			d.Descriptors = descriptors(depth + 1)
			all = append(all, d)
		}
		return all
	}
	return &configpb.RateLimitConfig{Name: "same", Domain: text.Draw(t, "domain"), Descriptors: descriptors(0)}
}

// A configuration is the same, whether it comes in a file or from a server.
func TestXDSAndFiles(t *testing.T) {
	t.Parallel()
	var plain func([]descriptorConfig) []descriptorConfig
	plain = func(all []descriptorConfig) (out []descriptorConfig) {
		for _, d := range all {
			d.line, d.descriptors = 0, plain(d.descriptors)
			if d.limit != nil {
				l := *d.limit
				l.line = 0
				d.limit = &l
			}
			out = append(out, d)
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		file := proto.CloneOf(c)
		file.Name = "" // a file has none
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(file)
		require.NoError(t, err)
		var m mistakes
		read, ok := (&reader{mistakes: &m}).file(File{Name: "same", Data: text})
		require.True(t, ok, "%s: %v", text, m.err())
		require.NoError(t, m.err(), "%s", text)
		sent := documentsOf([]*configpb.RateLimitConfig{c})[0]
		read.line = 0
		read.descriptors, sent.descriptors = plain(read.descriptors), plain(sent.descriptors)
		assert.Equal(t, read, sent)
	})
}

// Whatever a server sends, it is a configuration or a mistake.
func FuzzXDS(f *testing.F) {
	for _, c := range []*configpb.RateLimitConfig{domain("edge"), rapid.Custom(drawConfig).Example(1), rapid.Custom(drawConfig).Example(2)} {
		data, err := proto.Marshal(c)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := configOf(&anypb.Any{TypeUrl: configType, Value: data})
		if err != nil {
			return
		}
		tree, err := build(documentsOf([]*configpb.RateLimitConfig{c}), false)
		if err == nil {
			require.True(t, tree.knows(c.GetDomain()))
			return
		}
		require.NotEmpty(t, err.Error())
		require.Less(t, len(err.Error()), 64<<10)
	})
}
