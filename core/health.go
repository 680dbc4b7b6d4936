package core

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
)

// logInterval is how long the log is silent between two lines of one kind.
const logInterval = time.Second

// interval lets something happen at most once in logInterval.
type interval struct{ last atomic.Int64 } // Unix nanoseconds

func (i *interval) due() bool {
	now, last := time.Now().UnixNano(), i.last.Load()
	return now-last >= int64(logInterval) && i.last.CompareAndSwap(last, now)
}

// health is whether the store fails, as far as the log has said. It may fail for every request, or for every
// second one.
type health struct {
	failing atomic.Bool   // it has failed, and it was not said that it is back
	last    atomic.Int64  // when it last did, in Unix nanoseconds
	said    atomic.Uint32 // the classes that the log has been told of since then, a bit for each
	lost    interval      // the line that something could not be given back or charged
}

// classes are in the order of their bits. A class that is not among them shares the bit of the last.
var classes = [...]string{
	ClassTimeout, ClassDown, ClassLost, ClassOOM, ClassDenied, ClassReply, ClassBreaker, ClassBusy, ClassOther,
}

// classBit is the bit of a class, and those of the classes after which it says nothing new: a breaker opens because of
// another failure, and what is busy waits for one.
func classBit(class string) (bit, covers uint32) {
	bit = 1 << (len(classes) - 1)
	if i := slices.Index(classes[:], class); i >= 0 {
		bit = 1 << i
	}
	if class == ClassBreaker || class == ClassBusy {
		return bit, ^uint32(0)
	}
	return bit, bit
}

func (k *keeper) logger() *slog.Logger {
	if k.log != nil {
		return k.log
	}
	return slog.Default()
}

// failed notes a failure of the store. The log is told of the first, and of the first of each class, until the store
// is back.
func (k *keeper) failed(err *StoreError) {
	h := &k.health
	h.last.Store(time.Now().UnixNano())
	h.failing.Store(true)
	bit, covers := classBit(err.Class)
	if h.said.Load()&covers == 0 && h.said.Or(bit)&covers == 0 {
		k.logger().Warn("weir: the store failed; each policy's fail word decides", "class", err.Class, "error", err.Err)
	}
}

// recovered notes an answer of a store that has failed before.
func (k *keeper) recovered() {
	h := &k.health
	if time.Now().UnixNano()-h.last.Load() >= int64(logInterval) && h.failing.CompareAndSwap(true, false) {
		h.said.Store(0)
		k.holder.recovered()
		k.logger().Info("weir: the store is back")
	}
}

// lost notes what could not be given back or charged.
func (k *keeper) lost(what, of string, n int, err error) {
	if k.health.lost.due() {
		k.logger().Warn("weir: "+what, "what", of, "number", n, "error", err)
	}
}
