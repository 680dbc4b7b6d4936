package main

import (
	"encoding/json"
	"os"
	"testing"

	bootstrappb "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	ratelimitpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"gopkg.in/yaml.v3"

	"github.com/weir-go/weir/internal/redistest"
)

const example = "../../examples/envoy"

// The example of Envoy's configuration has the names and the bounds of Envoy's own definitions, and asks about the domain
// that the example of weir rls has.
func TestExampleOfEnvoy(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(example + "/envoy.yaml")
	require.NoError(t, err)
	var tree any
	require.NoError(t, yaml.Unmarshal(data, &tree))
	data, err = json.Marshal(tree)
	require.NoError(t, err)
	var b bootstrappb.Bootstrap
	require.NoError(t, protojson.Unmarshal(data, &b), "unknown names are errors")
	require.NoError(t, b.ValidateAll())
	var manager managerpb.HttpConnectionManager
	require.NoError(t, b.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(&manager))
	require.NoError(t, manager.ValidateAll())
	var filter ratelimitpb.RateLimit
	require.NoError(t, manager.GetHttpFilters()[0].GetTypedConfig().UnmarshalTo(&filter))
	require.NoError(t, filter.ValidateAll())

	p := startRLS(t, append(redisEnv(redistest.Single(t).Addr()), "RUNTIME_ROOT="+example, "RUNTIME_SUBDIRECTORY=ratelimit")...)
	eventually(t, "a configuration is loaded", func() bool { return p.healthy(t) })
	assert.Equal(t, uint32(600), p.limit(t, filter.GetDomain(), "remote_address=192.0.2.1"))
	assert.Equal(t, uint32(10), p.limit(t, filter.GetDomain(), "remote_address=192.0.2.1", "route=login"))
	answer, err := p.ask(t, filter.GetDomain(), "api_key=k")
	require.NoError(t, err)
	assert.Equal(t, rlspb.RateLimitResponse_OK, answer.GetOverallCode())
	assert.Equal(t, uint32(999), answer.GetStatuses()[0].GetLimitRemaining())
}
