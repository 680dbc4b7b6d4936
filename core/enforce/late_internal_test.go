package enforce

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// Nobody finds known what the store has not charged before the ledger has it: what is given back then is taken off.
func TestLateChargeIsOwedBeforeItIsKnown(t *testing.T) {
	p := core.MustParse("late: 10/1h")
	id := ledgerKeyOf(p, "k")
	for range 2000 {
		e := newEngine(newRemote(t), nil)
		c := &lateCharge{engine: e, policy: p, key: "k", owes: true, weighs: time.Hour, used: 1}
		answered := make(chan struct{})
		go func() {
			c.answered(core.Result{}, &core.StoreError{Class: core.ClassDown})
			close(answered)
		}()
		for known := false; !known; {
			c.mu.Lock()
			known = c.known
			c.mu.Unlock()
		}
		e.ledger.Sub(id, c.giveBack(1))
		<-answered
		require.True(t, e.ledger.Empty())
	}
}
