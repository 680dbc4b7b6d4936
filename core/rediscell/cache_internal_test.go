package rediscell

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// Policies that are built for callers who make up numbers are not kept forever.
func TestPolicyCacheIsBounded(t *testing.T) {
	var c policyCache
	for i := range int64(2 * maxCachedPolicies) {
		p, err := c.policy(core.Limit{Rate: i + 1, Period: time.Hour})
		require.NoError(t, err)
		require.Equal(t, i+1, p.Limits()[0].Rate)
		require.LessOrEqual(t, len(c.policies), maxCachedPolicies)
	}
	again, err := c.policy(core.Limit{Rate: 2 * maxCachedPolicies, Period: time.Hour})
	require.NoError(t, err)
	same, err := c.policy(core.Limit{Rate: 2 * maxCachedPolicies, Period: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, again, same, "it is built once")
	kept := len(c.policies)
	_, err = c.policy(core.Limit{})
	require.Error(t, err)
	assert.Len(t, c.policies, kept, "a mistake is not kept")
}
