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

// health knows whether the store fails, and what the log has been told of that: a store may fail for every request, or
// for every second one, and the log has a line for each class of failure.
type health struct {
	failing atomic.Bool   // it has failed, and the log was not told that it is back
	last    atomic.Int64  // when it last did, in Unix nanoseconds
	logged  atomic.Uint32 // the classes that the log has been told of meanwhile, a bit for each
	lost    interval      // between lines about what could not be given back or charged
}

// classes are in the order of their bits. A class that is not among them shares the bit of the last.
var classes = [...]string{
	ClassTimeout, ClassDown, ClassLost, ClassOOM, ClassDenied, ClassReply, ClassBreaker, ClassBusy, ClassOther,
}

// classBit returns the bit of a class, and the bits of the classes after which it is no news: a breaker opens because
// of another failure, and a store is busy because calls wait for one.
func classBit(class string) (bit, after uint32) {
	bit = 1 << (len(classes) - 1)
	if i := slices.Index(classes[:], class); i >= 0 {
		bit = 1 << i
	}
	if class == ClassBreaker || class == ClassBusy {
		return bit, ^uint32(0)
	}
	return bit, bit
}

func (e *engine) logger() *slog.Logger {
	if e.log != nil {
		return e.log
	}
	return slog.Default()
}

// failed notes a failure of the store. The log is told of the first, and of the first of each class, until the store
// is back.
func (e *engine) failed(err *StoreError) {
	h := &e.health
	h.last.Store(time.Now().UnixNano())
	h.failing.Store(true)
	bit, after := classBit(err.Class)
	if h.logged.Load()&after == 0 && h.logged.Or(bit)&after == 0 {
		e.logger().Warn("weir: the store failed; each policy's fail word decides", "class", err.Class, "error", err.Err)
	}
}

// recovered notes an answer of a store that has failed before.
func (e *engine) recovered() {
	h := &e.health
	if time.Now().UnixNano()-h.last.Load() >= int64(logInterval) && h.failing.CompareAndSwap(true, false) {
		h.logged.Store(0)
		e.holder.recovered()
		e.logger().Info("weir: the store is back")
	}
}

// lost notes what could not be given back or charged.
func (e *engine) lost(what, of string, n int, err error) {
	if e.health.lost.due() {
		e.logger().Warn("weir: "+what, "what", of, "number", n, "error", err)
	}
}
