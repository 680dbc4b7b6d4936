package recipes_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	extauthz "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // a filter of the block
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"gopkg.in/yaml.v3"

	"github.com/weir-go/weir/internal/gatewaytest"
)

// Envoy's own messages have every field of the documented block, with values that they take. No Envoy runs it.
func TestEnvoyBlockIsOfEnvoysFields(t *testing.T) {
	var block map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(gatewaytest.Documented(t, "envoy: whole")), &block))
	text, err := json.Marshal(block)
	require.NoError(t, err)
	var manager hcm.HttpConnectionManager
	require.NoError(t, protojson.Unmarshal(text, &manager)) // an unknown field is an error
	assert.True(t, manager.GetUseRemoteAddress().GetValue())
	require.Len(t, manager.GetHttpFilters(), 2)
	check := new(extauthz.ExtAuthz)
	require.NoError(t, manager.GetHttpFilters()[0].GetTypedConfig().UnmarshalTo(check))
	require.NoError(t, check.ValidateAll())
	assert.EqualValues(t, 503, check.GetStatusOnError().GetCode())
	assert.Equal(t, "/check", check.GetHttpService().GetPathPrefix())
	assert.Equal(t, 250*time.Millisecond, check.GetHttpService().GetServerUri().GetTimeout().AsDuration())
	assert.Nil(t, check.GetWithRequestBody())
}

// The documented block has no other fields than Traefik 3 knows. No Traefik runs it.
func TestTraefikBlockIsOfTraefiksFields(t *testing.T) {
	var block struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth struct {
					Address            string `yaml:"address"`
					TrustForwardHeader *bool  `yaml:"trustForwardHeader"`
				} `yaml:"forwardAuth"`
			} `yaml:"middlewares"`
			Routers map[string]struct {
				Rule        string   `yaml:"rule"`
				Middlewares []string `yaml:"middlewares"`
				Service     string   `yaml:"service"`
			} `yaml:"routers"`
			Services map[string]struct {
				LoadBalancer struct {
					Servers []struct {
						URL string `yaml:"url"`
					} `yaml:"servers"`
				} `yaml:"loadBalancer"`
			} `yaml:"services"`
		} `yaml:"http"`
	}
	d := yaml.NewDecoder(strings.NewReader(gatewaytest.Documented(t, "traefik: whole")))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&block))
	for _, router := range block.HTTP.Routers {
		for _, name := range router.Middlewares {
			assert.NotNil(t, block.HTTP.Middlewares[name].ForwardAuth.TrustForwardHeader)
		}
		assert.NotEmpty(t, block.HTTP.Services[router.Service].LoadBalancer.Servers)
	}
}
