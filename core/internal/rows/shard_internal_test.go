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
	assert.LessOrEqual(t, unsafe.Offsetof(s.first)+unsafe.Offsetof(s.first.inPlace)+unsafe.Sizeof(s.first.inPlace), uintptr(line))
	m := New(1_000_000)
	assert.Zero(t, uintptr(unsafe.Pointer(&m.shards[0]))%line)
}
