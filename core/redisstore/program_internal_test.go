package redisstore

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/keys"
)

// TestProgramsAreBounded: a service that makes policies as it runs keeps some thousands of programs, and the crowd that
// is one too many costs half of them their place, and not all.
func TestProgramsAreBounded(t *testing.T) {
	t.Parallel()
	const more = 1000 // at a time
	var ps programs
	var all sync.WaitGroup
	for part := range 4 {
		all.Go(func() {
			for n := range maxPrograms/4 - more {
				_, err := ps.of(keys.Names{}, core.MustParse(fmt.Sprintf("p: %d/1h", 1+4*n+part)))
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	count := func() (n int) {
		ps.byPolicy.Range(func(any, any) bool { n++; return true })
		require.EqualValues(t, n, ps.policies.Load())
		return n
	}
	require.Equal(t, maxPrograms-4*more, count(), "nothing is dropped below the bound")

	least := maxPrograms
	for n := range 8 * more {
		_, err := ps.of(keys.Names{}, core.MustParse(fmt.Sprintf("q: %d/1h", 1+n)))
		require.NoError(t, err)
		if kept := int(ps.policies.Load()); kept < least {
			least = kept
		}
		require.LessOrEqual(t, int(ps.policies.Load()), maxPrograms)
	}
	count()
	assert.InDelta(t, maxPrograms/2, least, maxPrograms/16, "half of them")

	p := core.MustParse("r: 1/1h")
	first, err := ps.of(keys.Names{}, p)
	require.NoError(t, err)
	second, err := ps.of(keys.Names{}, p)
	require.NoError(t, err)
	assert.Same(t, first, second)
}
