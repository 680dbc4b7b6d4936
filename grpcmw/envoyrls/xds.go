package envoyrls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// An XDS is a server of the configuration, such as the one in Envoy Gateway. It is asked over ADS, in the way that is
// called the state of the world, for resources of the type ratelimit.config.ratelimit.v3.RateLimitConfig.
type XDS struct {
	// Server is its address in a form that gRPC takes, such as "localhost:18000".
	Server string
	// Node and NodeMetadata say to the server who asks.
	Node         string
	NodeMetadata map[string]string
	// Headers are sent with each stream.
	Headers map[string]string
	// TLS is that of the connection; nil is none.
	TLS *tls.Config
	// Connect is the time to the next attempt when the server could not be reached, Wait that after a stream that has
	// ended; 0 is 3 s and 10 s. Each attempt that fails as well doubles them, up to MaxWait; 0 is a minute.
	Connect, Wait, MaxWait time.Duration
	// Jitter is the part of each wait that is random: with .5, a wait of 10 s takes 5 to 15. It is from 0 to 1.
	Jitter float64
	// MaxMessage is the most bytes of a message of the server; 0 is 4 MiB.
	MaxMessage int
}

const (
	configType   = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
	resourceType = "type.googleapis.com/envoy.service.discovery.v3.Resource"

	defaultConnect = 3 * time.Second
	defaultWait    = 10 * time.Second
	defaultMaxWait = time.Minute

	// A server is asked for a sign of life no more often than gRPC's servers take without a reason.
	lifeInterval = 6 * time.Minute
	lifePatience = 20 * time.Second

	maxDetail = 4096 // bytes of a NACK
)

// FollowXDS loads the configuration that a server sends, until ctx is done. A configuration that cannot be used is
// logged, refused with a NACK that says why, and the last good one stays; so it does while the server is not there. It
// returns at once, with an error, if x cannot work.
//
// A NACK is sent no more often than once in x.Connect, because there are servers that answer one by sending the same
// again.
func (s *Server) FollowXDS(ctx context.Context, x XDS) error {
	return x.follow(ctx, s.log(), func(documents []domainConfig) error { return s.replace(build(documents, s.config.MergeDomains)) })
}

func (x XDS) follow(ctx context.Context, log *slog.Logger, load func([]domainConfig) error) error {
	x = x.withDefaults()
	conn, err := x.dial()
	if err != nil {
		return fmt.Errorf("envoyrls: the server of the configuration: %w", err)
	}
	defer conn.Close()
	f := xdsFollower{xds: x, client: discoverypb.NewAggregatedDiscoveryServiceClient(conn), load: load, log: log}
	failures := 0
	for {
		err := f.stream(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if f.answered {
			failures = 0
		}
		wait := x.wait(failures, f.answered, rand.Float64()) //nolint:gosec // chance without secrets
		failures++
		log.Warn("weir: the server of the configuration is not there, and the configuration from before holds",
			"server", x.Server, "again", wait, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		conn.ResetConnectBackoff()
	}
}

func (x XDS) withDefaults() XDS {
	x.Connect = positive(x.Connect, defaultConnect)
	x.Wait = positive(x.Wait, defaultWait)
	x.MaxWait = positive(x.MaxWait, defaultMaxWait)
	return x
}

func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// wait returns the time to the next attempt after some that have failed, with a random number from 0 to 1.
func (x XDS) wait(failures int, answered bool, random float64) time.Duration {
	first := x.Connect
	if answered {
		first = x.Wait
	}
	wait := min(first, x.MaxWait)
	for ; failures > 0 && wait < x.MaxWait; failures-- {
		wait = min(2*wait, x.MaxWait)
	}
	wait = time.Duration(float64(wait) * (1 + min(max(x.Jitter, 0), 1)*(2*random-1)))
	return min(max(wait, time.Millisecond), x.MaxWait)
}

// dial makes the connection, which connects when it is used.
func (x XDS) dial() (*grpc.ClientConn, error) {
	if x.Server == "" {
		return nil, errors.New(`there is no Server; give an address such as "localhost:18000"`)
	}
	secure := insecure.NewCredentials()
	if x.TLS != nil {
		secure = credentials.NewTLS(x.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: x.Connect, Multiplier: 2, Jitter: 0, MaxDelay: x.MaxWait}, MinConnectTimeout: lifePatience,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: lifeInterval, Timeout: lifePatience}),
		grpc.WithDisableServiceConfig(),
	}
	if x.MaxMessage > 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(x.MaxMessage)))
	}
	return grpc.NewClient(x.Server, options...)
}

// xdsFollower is a client of an XDS, with one stream after the other.
type xdsFollower struct {
	xds    XDS
	client discoverypb.AggregatedDiscoveryServiceClient
	load   func([]domainConfig) error
	log    *slog.Logger

	version  string    // of the last good configuration
	refused  time.Time // the time of the last NACK
	answered bool      // the last stream had an answer
}

// stream follows the server until the stream ends.
func (f *xdsFollower) stream(ctx context.Context) error {
	f.answered = false
	ctx, end := context.WithCancel(metadata.NewOutgoingContext(ctx, metadata.New(f.xds.Headers)))
	defer end()
	stream, err := f.client.StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	request := discoverypb.DiscoveryRequest{VersionInfo: f.version, Node: f.xds.node(), TypeUrl: configType}
	for {
		// The reason why a stream has ended is with Recv.
		if err := stream.Send(&request); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		response, err := stream.Recv()
		for err == nil && response.GetTypeUrl() != configType && response.GetTypeUrl() != "" {
			response, err = stream.Recv() // nobody has asked for it, and so nobody answers
		}
		if err != nil {
			return err
		}
		f.answered = true
		request = discoverypb.DiscoveryRequest{Node: request.GetNode(), TypeUrl: configType, ResponseNonce: response.GetNonce()}
		if err := f.take(response); err != nil {
			f.log.Error("weir: the configuration cannot be used, and the one from before holds",
				"server", f.xds.Server, "version", response.GetVersionInfo(), "error", err)
			if !f.mayRefuse(ctx) {
				return ctx.Err()
			}
			text := err.Error()
			text = strings.ToValidUTF8(text[:min(len(text), maxDetail)], "") // or it could not be sent
			request.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: text}
		} else {
			f.version = response.GetVersionInfo()
			f.log.Info("weir: the configuration was loaded", "server", f.xds.Server, "version", f.version,
				"resources", len(response.GetResources()))
		}
		request.VersionInfo = f.version
	}
}

// mayRefuse waits until a NACK may be sent, and returns false if ctx is done before.
func (f *xdsFollower) mayRefuse(ctx context.Context) bool {
	if wait := f.xds.Connect - time.Since(f.refused); !f.refused.IsZero() && wait > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
	f.refused = time.Now()
	return true
}

// take loads what a response has.
func (f *xdsFollower) take(response *discoverypb.DiscoveryResponse) error {
	configs := make([]*configpb.RateLimitConfig, 0, len(response.GetResources()))
	for i, resource := range response.GetResources() {
		c, err := configOf(resource)
		if err != nil {
			return fmt.Errorf("resource %d: %w", i+1, err)
		}
		configs = append(configs, c)
	}
	return f.load(documentsOf(configs))
}

// configOf returns the configuration in a resource, which may have a wrapper.
func configOf(resource *anypb.Any) (*configpb.RateLimitConfig, error) {
	if resource.GetTypeUrl() == resourceType {
		var wrapper discoverypb.Resource
		if err := resource.UnmarshalTo(&wrapper); err != nil {
			return nil, err
		}
		resource = wrapper.GetResource()
	}
	c := new(configpb.RateLimitConfig)
	if resource.GetTypeUrl() != configType {
		return nil, fmt.Errorf("found the type %.100q; expected %q", resource.GetTypeUrl(), configType)
	}
	if err := resource.UnmarshalTo(c); err != nil {
		return nil, err
	}
	return c, nil
}

// node returns the description of the client.
func (x XDS) node() *corepb.Node {
	n := &corepb.Node{Id: x.Node, UserAgentName: "weir"}
	if len(x.NodeMetadata) > 0 {
		n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for name, value := range x.NodeMetadata {
			n.Metadata.Fields[name] = structpb.NewStringValue(value)
		}
	}
	return n
}

// documentsOf returns configurations of an XDS as documents.
func documentsOf(configs []*configpb.RateLimitConfig) []domainConfig {
	documents := make([]domainConfig, len(configs))
	for i, c := range configs {
		name := c.GetName()
		if name == "" {
			name = fmt.Sprintf("resource %d", i+1)
		}
		documents[i] = domainConfig{source: name, domain: c.GetDomain(), descriptors: descriptorsOf(c.GetDescriptors())}
	}
	return documents
}

func descriptorsOf(all []*configpb.RateLimitDescriptor) []descriptorConfig {
	out := make([]descriptorConfig, len(all))
	for i, d := range all {
		out[i] = descriptorConfig{
			key: d.GetKey(), value: d.GetValue(), limit: limitOf(d.GetRateLimit()), shadow: d.GetShadowMode(),
			quota: d.GetQuotaMode(), detailedMetric: d.GetDetailedMetric(), descriptors: descriptorsOf(d.GetDescriptors()),
		}
		if m := d.GetMetadata(); m != nil {
			out[i].metadata = m.AsMap()
		}
	}
	return out
}

func limitOf(l *configpb.RateLimitPolicy) *limitConfig {
	if l == nil {
		return nil
	}
	out := &limitConfig{requests: l.GetRequestsPerUnit(), unlimited: l.GetUnlimited(), name: l.GetName()}
	if l.GetUnit() != configpb.RateLimitUnit_UNKNOWN {
		out.unit = l.GetUnit().String()
	}
	for _, r := range l.GetReplaces() {
		out.replaces = append(out.replaces, r.GetName())
	}
	return out
}
