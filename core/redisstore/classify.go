package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/dial"
)

// prefixes are the errors of a server that ran nothing.
var prefixes = []struct {
	prefix, class string
	// transient errors may be gone a moment later, or elsewhere: the command may
	// be sent once more.
	transient bool
}{
	{"NOSCRIPT", core.ClassOther, false},
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
	{"invalid password", core.ClassDenied, false},
	{"AUTH <password> called without", core.ClassDenied, false},
	{"NOPERM", core.ClassDenied, false},
	{deniedInScript, core.ClassDenied, false},
	{"MOVED", core.ClassOther, false},
	{"ASK", core.ClassOther, false},
	{"CROSSSLOT", core.ClassOther, false},
}

// deniedInScript begins the error of a script that lacked a right once it ran.
const deniedInScript = "The user executing the script can't"

// serverSays returns the text of a server's error, or "" if err is no such error. Servers before
// Redis 7 wrap the error of a command in a script: "ERR Error running script (call to
// f_...): @user_script:5: -READONLY ...".
func serverSays(err error) string {
	var server redis.Error
	if !errors.As(err, &server) {
		return ""
	}
	says := strings.TrimPrefix(server.Error(), "ERR ")
	if _, after, ok := strings.Cut(says, "@user_script"); ok && strings.HasPrefix(says, "Error running script") {
		if _, inner, ok := strings.Cut(after, ": -"); ok {
			return inner
		}
	}
	return says
}

// heard reports whether a server has answered something, if failed is the client's error.
func heard(failed error) bool { return failed == nil || serverSays(failed) != "" }

// replayable reports whether a call surely did not run and may succeed at a second try: the server's error is a transient
// one, or the write failed. A write that failed by its timeout is such a one only if nothing at all was written.
func replayable(err error) bool {
	if err == nil {
		return false
	}
	says := serverSays(err)
	for _, p := range prefixes {
		if p.transient && strings.HasPrefix(says, p.prefix) {
			return true
		}
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "write" && (!op.Timeout() || neverWritten(op))
}

// neverWritten reports whether a write failed before anything of the command was written. With a timeout that is a write
// which came too late, because the process was stopped or had no processor: the server is not to blame.
func neverWritten(op *net.OpError) bool {
	begun, known := dial.Begun(op)
	return known && !begun
}

// lateWrite reports whether nothing was executed because the process came too late to write it.
func lateWrite(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "write" && op.Timeout() && neverWritten(op)
}

// torn returns the error of a command in a pipeline. If writing that failed in the middle, its beginning may have arrived,
// and have been executed. long says that it could not be written at once, which matters if the connection does not know
// how far it came.
func torn(err error, long bool) error {
	var op *net.OpError
	ok := errors.As(err, &op)
	if ok {
		if begun, known := dial.Begun(op); known {
			long = begun
		}
	}
	switch {
	case !ok || op.Op != "write" || !long:
		return err
	case op.Timeout():
		return fmt.Errorf("redisstore: in the middle of a pipeline: %s: %w", op.Error(), os.ErrDeadlineExceeded)
	default:
		return fmt.Errorf("redisstore: in the middle of a pipeline: %s: %w", op.Error(), io.ErrUnexpectedEOF)
	}
}

// classify returns the class of an error of the client, and whether the command may have run all the same. retry chooses
// what is sent once more, and the breaker what counts against the server:
//
//	class     error                                             may have run      sent once more        the breaker
//	timeout   no answer within the deadline of the flight       yes               never                 counts it
//	          no connection, or not written, within that        no                never                 counts it
//	down      no connection, or the write failed otherwise      no                a failed write        counts it
//	          READONLY, LOADING and others among prefixes       no                those transient       counts it
//	lost      the connection broke after the command was sent   yes               if it is harmless     counts it, see staleFor
//	busy      nothing was written, by a process that came late  no                if there is time      ignores it
//	          no connection free, no room or flight, too late   no                never                 ignores it
//	          no answer to a process that asks for too much     yes               never                 ignores it
//	denied    no right, or the user is not let in (keptOut)     no, see Acquire   never                 counts keptOut
//	oom       out of memory                                     no                never                 the server lives
//	other     NOSCRIPT, MOVED, ASK, CROSSSLOT                   no                each in its way       the server lives
//	          other errors of the server                        yes               never                 the server lives
//	reply     an answer that makes no sense, and all the rest   yes               never                 the server lives
//	breaker   the breaker is open                               no                never                 ignores it
//
// classify returns busy only if no connection is free: see judge and the errors below for the others. To the breaker, judge
// also reports a timeout as busy if the process was stopped or has no processor.
func classify(err error) *core.StoreError {
	e := &core.StoreError{Class: core.ClassOther, MaybeExecuted: true, Err: err}
	says := serverSays(err)
	for _, p := range prefixes {
		if strings.HasPrefix(says, p.prefix) {
			e.Class, e.MaybeExecuted = p.class, false
			switch p.prefix {
			case "MOVED":
				e.Err = fmt.Errorf("%w (redisstore: this server is part of a Cluster; set IsClusterMode on what ClientOptions "+
					"returned, or give a redis.ClusterClient)", err)
			case deniedInScript:
				e.Err = fmt.Errorf("%w (redisstore: ACL LOG on the server says which command)", err)
			}
			return e
		}
	}
	var op *net.OpError
	switch {
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "write"):
		// The commands are far smaller than a socket's buffer, or torn has seen the
		// error: a failed write sent no whole one.
		e.Class, e.MaybeExecuted = core.ClassDown, false
		if op.Timeout() {
			e.Class = core.ClassTimeout
		}
	case says == "" && strings.HasSuffix(err.Error(), "all ring shards are down"):
		e.Class, e.MaybeExecuted = core.ClassDown, false
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		e.Class, e.MaybeExecuted = core.ClassBusy, false
	case errors.Is(err, redis.ErrClosed):
		e.Class, e.MaybeExecuted = core.ClassDown, false
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		e.Class = core.ClassTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		e.Class = core.ClassLost
	case says == "":
		e.Class = core.ClassReply
	}
	return e
}

// keptOut reports whether a server does not let this user in, so that each try costs it another connection.
func keptOut(err error) bool {
	var failed *core.StoreError
	ok := errors.As(err, &failed)
	if !ok || failed.Class != core.ClassDenied {
		return false
	}
	says := serverSays(failed.Err)
	return !strings.HasPrefix(says, "NOPERM") && !strings.HasPrefix(says, deniedInScript)
}

// silent reports whether a failure of this class counts against the server, as one that keeps its callers waiting. A server
// that answers with another error is alive.
func silent(class string) bool {
	return class == core.ClassTimeout || class == core.ClassDown || class == core.ClassLost
}

func classOf(err error) string {
	if err == nil {
		return ""
	}
	var failed *core.StoreError
	if errors.As(err, &failed) {
		return failed.Class
	}
	return ""
}

// The failures of calls for which the client reports none.
var (
	errFull = &core.StoreError{
		Class: core.ClassBusy,
		Err:   fmt.Errorf("redisstore: the queue for the server is full: %d calls of this process wait", maxWaiting),
	}
	// errBusy is errNotSent of a server that answers others.
	errBusy = &core.StoreError{
		Class: core.ClassBusy,
		Err:   errors.New("redisstore: too many calls queued ahead of this one"),
	}
	// errPaused is the failure of what was not asked because its caller would not have waited for the answer.
	errPaused = &core.StoreError{
		Class: core.ClassBusy,
		Err:   errors.New("redisstore: too late to ask the server: this process was stopped, or is short of processors"),
	}
	// errNotSent is the failure of a call that found no flight in time, because those under way were not answered.
	errNotSent = &core.StoreError{
		Class: core.ClassTimeout,
		Err:   fmt.Errorf("redisstore: not sent, as the server has not answered the calls before this one: %w", context.DeadlineExceeded),
	}
	// errOverdue is errNoAnswer in a process that is to blame for it: see overloadedSince.
	errOverdue = &core.StoreError{
		Class: core.ClassBusy, MaybeExecuted: true,
		Err: errors.New("redisstore: the answer came too late, because this process asks for more than it can handle"),
	}
	// errNoAnswer is the failure of a call whose answer did not come within its caller's time.
	errNoAnswer = &core.StoreError{Class: core.ClassTimeout, MaybeExecuted: true, Err: context.DeadlineExceeded}
)
