package enforce

import (
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/weir-go/weir/core"
)

// logInterval is the least time between two lines of one kind in the log.
const logInterval = time.Second

// interval lets something happen at most once in logInterval.
type interval struct{ last atomic.Int64 } // Unix nanoseconds

func (i *interval) due() bool {
	now, last := time.Now().UnixNano(), i.last.Load()
	return now-last >= int64(logInterval) && i.last.CompareAndSwap(last, now)
}

// stillInterval is the time between two lines in the log about one outage.
const stillInterval = time.Minute

// health records the failures of a store, for all engines that share it: an outage for each server that fails.
// However many decisions fail, the log has a line for each class of failure in an outage, one each minute with the
// number of decisions that each fail word has made, and one when the server is back.
type health struct {
	failing atomic.Bool // there are outages

	mu      sync.Mutex
	outages map[string]*outage // by StoreError.Server
	looked  interval           // between looks whether one is over
	givenUp interval           // between lines about what could not be given back or charged
}

// healths has the health of each in-process store that decides for another one while that fails: all engines of a store
// share its fallback, and so its health. An entry goes with the in-process store.
var healths sync.Map // of *health, by weak.Pointer[core.Memory]

func healthOf(fallback *core.Memory) *health {
	key := weak.Make(fallback)
	h, known := healths.LoadOrStore(key, new(health))
	if !known {
		runtime.AddCleanup(fallback, func(key weak.Pointer[core.Memory]) { healths.Delete(key) }, key)
	}
	return h.(*health) //nolint:forcetypeassert // there is nothing else in the map
}

// outage is the time in which a server fails now and then.
type outage struct {
	since, last, said time.Time
	logged            uint32 // the classes of which the log has a line, a bit for each
	decided           [core.FailClosed + 1]int64
	class             string // of the latest failure that is not the consequence of another one, if there was any
}

// maxOutages bounds the servers that have separate outages. Further ones share that of "".
const maxOutages = 64

// classes are in the order of their bits. A class that is not among them shares the bit of the last.
var classes = [...]string{
	core.ClassTimeout, core.ClassDown, core.ClassLost, core.ClassOOM, core.ClassDenied, core.ClassReply, core.ClassBreaker, core.ClassBusy, core.ClassOther,
}

// classBit returns the bit of a class, and the bits of the classes after which it is no news: a breaker opens because
// of another failure, and a store is busy because calls wait for one.
func classBit(class string) (bit, after uint32) {
	bit = 1 << (len(classes) - 1)
	if i := slices.Index(classes[:], class); i >= 0 {
		bit = 1 << i
	}
	if class == core.ClassBreaker || class == core.ClassBusy {
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

// failed notes a failure of the store, for which the fail word decides.
func (e *engine) failed(err *core.StoreError, word core.Failure) {
	now := time.Now()
	e.last.Store(now.UnixNano())
	e.failing.Store(true)
	if line, args := e.health.failed(err, word, now); line != "" { // a log that blocks must hold up nobody else
		e.logger().Warn(line, append(args, "class", err.Class, "error", err.Err)...)
	}
}

// failed notes a failure in the outage of its server. It returns the line for the log, or "".
func (h *health) failed(err *core.StoreError, word core.Failure, now time.Time) (line string, args []any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server := err.Server
	o := h.outages[server]
	if o == nil && len(h.outages) >= maxOutages {
		server = ""
		o = h.outages[server]
	}
	if o == nil {
		o = &outage{since: now, said: now}
		if h.outages == nil {
			h.outages = map[string]*outage{}
		}
		h.outages[server] = o
	}
	h.failing.Store(true)
	o.last = now
	if word <= core.FailClosed {
		o.decided[word]++
	}
	bit, after := classBit(err.Class)
	if bit == after || o.class == "" {
		o.class = err.Class
	}
	switch {
	case o.logged&after == 0:
		line, args = "weir: the store failed; each policy's fail word decides", serverArgs(server)
	case now.Sub(o.said) >= stillInterval:
		o.said = now
		line, args = "weir: the store still fails", o.cost(serverArgs(server), now)
	}
	o.logged |= bit
	return line, args
}

// serverArgs begins the arguments of a line about a server.
func serverArgs(server string) []any {
	if server == "" {
		return nil
	}
	return []any{"server", server}
}

// cost appends how long an outage has lasted, and how many decisions each fail word has made meanwhile.
func (o *outage) cost(args []any, now time.Time) []any {
	args = append(args, "for", now.Sub(o.since).Round(time.Second))
	for word, n := range o.decided {
		if n > 0 {
			args = append(args, core.Failure(word).String(), n)
		}
	}
	return args
}

// recovered notes an answer of a store that has failed before.
func (e *engine) recovered() {
	now := time.Now()
	if now.UnixNano()-e.last.Load() >= int64(logInterval) && e.failing.CompareAndSwap(true, false) {
		e.holder.stopAdopting()
	}
	if e.health.failing.Load() {
		fails, _ := e.store.(interface{ Failing(server string) bool })
		for _, args := range e.health.over(fails, now) {
			e.logger().Info("weir: the store is back", args...)
		}
	}
}

// over ends the outages of servers that answer again, and returns the arguments of a line for the log on each. fails is
// the store, or nil if that does not know its servers.
func (h *health) over(fails interface{ Failing(server string) bool }, now time.Time) (lines [][]any) {
	if !h.mu.TryLock() { // somebody else looks
		return nil
	}
	defer h.mu.Unlock()
	if !h.looked.due() {
		return nil
	}
	for server, o := range h.outages {
		if now.Sub(o.last) < logInterval || fails != nil && fails.Failing(server) {
			continue
		}
		delete(h.outages, server)
		lines = append(lines, o.cost(serverArgs(server), now))
	}
	h.failing.Store(len(h.outages) > 0)
	return lines
}

// gaveUp returns a function that logs what could not be given back or charged.
func (e *engine) gaveUp(what, of string) func(n int, err error) {
	return func(n int, err error) {
		if e.health.givenUp.due() {
			e.logger().Warn("weir: "+what, "what", of, "number", n, "error", err)
		}
	}
}
