package rows

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// What finding a key takes is in one cache line, and no two shards share one.
func TestShardInCacheLines(t *testing.T) {
	if unsafe.Sizeof(0) != 8 {
		t.Skip("where an int is shorter, so is all else")
	}
	const line = 64
	var s shard
	assert.Zero(t, unsafe.Sizeof(s)%line)
	assert.Zero(t, unsafe.Offsetof(s.first))
	assert.Equal(t, uintptr(line), unsafe.Offsetof(s.first.live), "what is written is not with what all read")
	m := New(1_000_000)
	assert.Zero(t, uintptr(unsafe.Pointer(&m.shards[0]))%line)
}
