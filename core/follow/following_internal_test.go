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

// A Set that was prepared may be shown, and taken up by another caller, while a slow one makes the Set before, which
// nobody has prepared. The slow one does not bring that back, neither for a moment nor as what later Sets follow.
func TestSlowCallerBringsNothingBack(t *testing.T) {
	source, slow, prepared := new(atomic.Pointer[Set]), &Set{Revision: "slow"}, &Set{Revision: "prepared"}
	var f *Following[string]
	meanwhile := func() {}
	f = NewFollowing(source, "none", func(s *Set, before string) string {
		if s == slow {
			meanwhile()
		}
		return before + " " + s.Revision
	})
	source.Store(slow)
	f.Prepare(prepared)
	meanwhile = func() {
		source.Store(prepared)
		assert.Equal(t, "none prepared", f.Now())
	}
	assert.Equal(t, "none prepared", f.Now(), "the slow one")
	f.making.Lock() // as while a third one is prepared
	assert.Equal(t, "none prepared", f.Now())
	f.making.Unlock()
	assert.Equal(t, "none prepared later", f.Prepare(&Set{Revision: "later"}))

	// The Source may go back, which is another change.
	meanwhile = func() {}
	source.Store(slow)
	assert.Equal(t, "none prepared slow", f.Now())
	source.Store(prepared)
	assert.Equal(t, "none prepared slow prepared", f.Now())
}
