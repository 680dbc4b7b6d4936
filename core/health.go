package core

import (
	"errors"
	"log/slog"
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
	failing atomic.Bool  // it has failed, and it was not said that it is back
	last    atomic.Int64 // when it last did, in Unix nanoseconds
	failed  interval     // the line that it fails
	lost    interval     // the line that something could not be given back or charged
}

func (k *keeper) logger() *slog.Logger {
	if k.log != nil {
		return k.log
	}
	return slog.Default()
}

// failed notes a failure of the store, and reports whether err is one.
func (k *keeper) failed(err error) bool {
	failed, ok := errors.AsType[*StoreError](err)
	if !ok {
		return false
	}
	k.health.last.Store(time.Now().UnixNano())
	k.health.failing.Store(true)
	if k.health.failed.due() {
		k.logger().Warn("weir: the store failed; each policy's fail word decides", "class", failed.Class, "error", failed.Err)
	}
	return true
}

// recovered notes an answer of a store that has failed before.
func (k *keeper) recovered() {
	h := &k.health
	if time.Now().UnixNano()-h.last.Load() >= int64(logInterval) && h.failing.CompareAndSwap(true, false) {
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
