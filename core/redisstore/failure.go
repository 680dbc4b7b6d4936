package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/weir-go/weir/core"
)

// prefixes are the errors of a server that ran nothing.
var prefixes = []struct {
	prefix, class string
	// transient errors may be gone a moment later, or elsewhere: the command may
	// be sent once more.
	transient bool
}{
	{"NOSCRIPT", core.ClassOther, true},
	{"READONLY", core.ClassDown, true},
	{"MASTERDOWN", core.ClassDown, true},
	{"CLUSTERDOWN", core.ClassDown, true},
	{"TRYAGAIN", core.ClassDown, true},
	{"LOADING", core.ClassDown, true},
	{"max number of clients", core.ClassDown, true},
	{"BUSY", core.ClassDown, false},
	{"MISCONF", core.ClassDown, false},
	{"OOM", core.ClassOOM, false},
	{"NOAUTH", core.ClassDenied, false},
	{"WRONGPASS", core.ClassDenied, false},
	{"NOPERM", core.ClassDenied, false},
	{"The user executing the script can't", core.ClassDenied, false},
	{"MOVED", core.ClassOther, false},
	{"ASK", core.ClassOther, false},
	{"CROSSSLOT", core.ClassOther, false},
}

// replayable tells whether a call surely did not run and may do so at a second try.
func replayable(err error) bool {
	if err == nil {
		return false
	}
	for _, p := range prefixes {
		if p.transient && redis.HasErrorPrefix(err, p.prefix) {
			return true
		}
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "write" && !op.Timeout()
}

// classify says what an error of the client means.
func classify(err error) *core.StoreError {
	e := &core.StoreError{Class: core.ClassOther, Executed: true, Err: err}
	for _, p := range prefixes {
		if redis.HasErrorPrefix(err, p.prefix) {
			e.Class, e.Executed = p.class, false
			if p.prefix == "MOVED" {
				e.Err = errors.Join(err, errors.New("redisstore: this server is part of a cluster; give a redis.ClusterClient"))
			}
			return e
		}
	}
	var op *net.OpError
	var server redis.Error
	switch {
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "write"):
		// The commands are far smaller than a socket's buffer: a failed write
		// sent no whole one.
		e.Class, e.Executed = core.ClassDown, false
		if op.Timeout() {
			e.Class = core.ClassTimeout
		}
	case errors.Is(err, redis.ErrPoolTimeout):
		e.Class, e.Executed = core.ClassTimeout, false
	case errors.Is(err, redis.ErrClosed):
		e.Class, e.Executed = core.ClassDown, false
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		e.Class = core.ClassTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		e.Class = core.ClassLost
	case !errors.As(err, &server):
		e.Class = core.ClassReply
	}
	return e
}

// A breaker opens after tripAfter failures in a row and lets one call through
// every probeEvery. "In a row" makes it tolerant: a cluster that has lost one
// shard of several still answers in between, and goes on being asked.
const (
	tripAfter  = 5
	probeEvery = time.Second
)

// newBreaker builds a breaker that counts what keeps a request waiting. A server
// that answers with an error is alive; a caller who left says nothing about it;
// nor does a broken connection, since every pooled one breaks when a server
// restarts.
func newBreaker() *gobreaker.CircuitBreaker[[]int64] {
	return gobreaker.NewCircuitBreaker[[]int64](gobreaker.Settings{
		Name:        "weir",
		MaxRequests: 1,
		Timeout:     probeEvery,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		IsSuccessful: func(err error) bool {
			class := classOf(err)
			return class != core.ClassTimeout && class != core.ClassDown
		},
		IsExcluded: func(err error) bool {
			return errors.Is(err, errLeft) || classOf(err) == core.ClassLost
		},
	})
}

func classOf(err error) string {
	if err == nil {
		return ""
	}
	if failed := (*core.StoreError)(nil); errors.As(err, &failed) {
		return failed.Class
	}
	return ""
}
