package enforce

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core"
)

// Nobody finds known what the store has not charged before the ledger has it: what is given back then is taken off.
func TestLateChargeIsOwedBeforeItIsKnown(t *testing.T) {
	e, p := newEngine(newRemote(t), nil), core.MustParse("late: 10/1h")
	id := ledgerKeyOf(p, "k")
	c := &lateCharge{engine: e, policy: p, key: "k", owes: true, weighs: time.Hour, used: 1}
	shard := e.ledger.shard(id)
	shard.mu.Lock()
	answered := make(chan struct{})
	go func() {
		c.answered(core.Result{}, &core.StoreError{Class: core.ClassDown})
		close(answered)
	}()
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
		if c.mu.TryLock() {
			assert.False(t, c.known)
			c.mu.Unlock()
		}
	}
	shard.mu.Unlock()
	<-answered
	e.ledger.sub(id, c.giveBack(1))
	assert.Zero(t, e.ledger.take(id))
}
