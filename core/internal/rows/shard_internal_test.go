package rows

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// No two shards share a cache line, and what others read is not in one with what is written for each key.
func TestShardInCacheLines(t *testing.T) {
	if unsafe.Sizeof(0) != 8 {
		t.Skip("where an int is shorter, so is all else")
	}
	const line = 64
	var s shard
	assert.Zero(t, unsafe.Sizeof(s)%line)
	assert.Zero(t, unsafe.Offsetof(s.first))
	assert.Equal(t, uintptr(line), unsafe.Offsetof(s.first.live), "what is written is not with what all read")
	assert.LessOrEqual(t, int(unsafe.Sizeof(array{})), line)
	m := New(1_000_000)
	assert.Zero(t, uintptr(unsafe.Pointer(&m.shards[0]))%line)
}
