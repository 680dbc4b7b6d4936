package follow

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

// No caller prepares a Set that the Source has prepared: not the first one, and not one that comes, the first since
// that was shown, while the Source prepares the next.
func TestNoCallerPrepares(t *testing.T) {
	source := new(atomic.Pointer[Set])
	f := NewFollowing(source, "", func(s *Set, _ string) string { return s.Policies["job"] })
	prepare := func(text string) (*Set, *version[string]) {
		s := &Set{Policies: map[string]string{"job": text}}
		f.Prepare(s)
		return s, f.prepared.Load()
	}
	first, made := prepare("20/1h")
	assert.Empty(t, f.Now(), "it is not shown yet")
	source.Store(first)
	second, next := prepare("30/1h")
	assert.Equal(t, "20/1h", f.Now())
	assert.Same(t, made, f.last.Load())
	source.Store(second)
	f.making.Lock() // as while a third one is prepared
	assert.Equal(t, "30/1h", f.Now())
	assert.Same(t, next, f.last.Load())
	f.making.Unlock()
	set, text := f.Last()
	assert.Same(t, second, set)
	assert.Equal(t, "30/1h", text)
}
