package enforce

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// byHand is a Listener whose Sets a test prepares and shows.
type byHand struct {
	atomic.Pointer[Set]
	follower *Follower
}

func (b *byHand) Listen(f *Follower) { b.follower = f }

// No caller prepares a Set that the Source has prepared: not the first one, and not one that comes, the first since
// that was shown, while the Source prepares the next.
func TestNoCallerPrepares(t *testing.T) {
	source := new(byHand)
	l, err := New(nil, core.MustParse("job: 10/1h"), Options{Source: source})
	require.NoError(t, err)
	prepare := func(rate int) (*Set, *version[*Variants]) {
		s := &Set{Policies: map[string]string{"job": fmt.Sprint(rate, "/1h")}}
		_, alive := source.follower.Prepare(s)
		require.True(t, alive)
		return s, l.following.prepared.Load()
	}
	first, made := prepare(20)
	assert.Equal(t, "job: 10/1h", l.Policy().String(), "it is not shown yet")
	source.Store(first)
	second, next := prepare(30)
	assert.Equal(t, "job: 20/1h", l.Policy().String())
	assert.Same(t, made, l.following.last.Load())
	source.Store(second)
	l.following.making.Lock() // as while a third one is prepared
	assert.Equal(t, "job: 30/1h", l.Policy().String())
	assert.Same(t, next, l.following.last.Load())
	l.following.making.Unlock()
}
