package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
)

// entry is one thing to ask a server for: a script, or without one the deletion of the key.
type entry struct {
	key    string
	policy core.Policy // in whose queue it waits; zero for what no request waits for
	script *script
	args   []any // of the script
	// harmless entries do nothing when they are done a second time.
	harmless bool
	// weight is the server's time that it takes, in half microseconds: everybody else on the server waits.
	weight int64

	// mayShare is true of a take that one script may decide together with others, and program is that of its policy.
	mayShare bool
	program  *program

	reply []int64
	err   error

	owner *passenger // nil if its caller flies itself
}

// enter makes p, which may have been another one before, the passenger of an entry.
//
// A passenger is also a cache of one name: if the entry is of a take, t, its key has no name yet, and p keeps the one
// that the caller before needed. Nearly always it is the same again, and a name costs an allocation. So a caller
// that flies alone takes a passenger from the pool, too.
func (p *passenger) enter(e *entry, t *core.Take, entered time.Time) *passenger {
	p.entry, p.entered, p.decided, p.lateErr, p.answerOnly = *e, entered, false, nil, false
	p.owner = p
	p.outcome.begin()
	if t == nil {
		return p
	}
	switch {
	case p.key != "": // on a Cluster or Ring
	case p.lastProgram == p.program && p.lastKey == t.Key:
		p.key = p.last
	default:
		p.key = p.program.name(t.Key)
	}
	// The text of the key may be a part of a request, and so must not be kept when its caller has left. Nearly always
	// the name ends with the same text.
	p.take, p.last, p.lastProgram = *t, p.key, nil
	if before, ok := strings.CutSuffix(p.key, t.Key); ok {
		p.take.Key = p.key[len(before):]
		p.lastProgram, p.lastKey = p.program, p.take.Key
	} else {
		p.take.Key = strings.Clone(t.Key)
	}
	return p
}

// call is a command of a flight, and how far it has come.
type call struct {
	entry *entry // the first one's, if it is shared
	*shared
	cmd    redis.Cmder        // as it was sent
	script *script            // in it, if it has one
	ints   *redis.IntSliceCmd // the same, of a script

	text     bool // the script travels whole, for a server that does not know its hash
	known    bool // the server has the script from another call
	repeated bool // it was sent once more
	lost     bool // the reply to a harmless entry was lost, so that it may have been done
}

// command is a call of a script that no client ever repeats by itself: whether a
// script ran is unknown once its reply is lost, and running it again would
// charge twice. Clients still follow a cluster's redirections, after which
// nothing has run.
type command struct{ *redis.IntSliceCmd }

// NoRetry overrides that of go-redis's commands.
func (command) NoRetry() bool { return true }

// deletion is the same for a DEL, which may travel with others.
type deletion struct{ *redis.IntCmd }

// NoRetry is like that of command.
func (deletion) NoRetry() bool { return true }

// command makes the command anew, each time that it is sent. Its arguments are appended to room; key is that of the
// entry, as the client takes it.
func (c *call) command(ctx context.Context, room []any, key any) redis.Cmder {
	e := c.entry
	if e.script == nil {
		cmd := deletion{redis.NewIntCmd(ctx, "del", key)}
		cmd.SetFirstKeyPos(1)
		cmd.SetStepCount(1)
		c.cmd = cmd
		return cmd
	}
	if c.script = e.script; c.shared != nil {
		c.script = e.script.takes
	}
	name, hash := any("evalsha"), c.script.hash
	if c.text {
		name, hash = "eval", c.script.text
	}
	args := append(room, name, hash)
	if c.shared != nil {
		args = c.arguments(args, e)
	} else {
		args = append(append(args, "1", key), e.args...)
	}
	c.ints = redis.NewIntSliceCmd(ctx, args...)
	cmd := command{c.ints}
	cmd.SetFirstKeyPos(3)
	cmd.SetStepCount(1) // or a cluster's client would ask the servers what EVALSHA is
	c.cmd = cmd
	return cmd
}

// result returns what came of a command that was sent. failed is the client's error for all that were sent with it.
func (c *call) result(failed error) (reply []int64, err error) {
	if err = c.cmd.Err(); c.ints != nil {
		reply = c.ints.Val()
	}
	switch {
	case err != nil:
	case failed != nil && reply == nil && (c.ints != nil || serverSays(failed) == ""):
		err = failed // a command that was not even sent
	case c.ints != nil && reply == nil:
		err = errNoReply
	}
	return reply, err
}

// errNoReply is the failure of a command that one of the client's hooks has kept to itself.
var errNoReply = errors.New("redisstore: the client reports neither a reply nor an error; do its hooks call the next one?")

// retry reports whether a call that failed is to be sent once more. It goes again, at most once, if
//
//   - it surely did not run and may now succeed: see replayable
//   - its connection broke before the reply came (class lost), and it is harmless: a permit or a Reset
//   - the server does not know its script (NOSCRIPT): then the script travels whole, as text. That may be a third time, if
//     the server has just restarted. texts are the scripts that travel whole, after which the server knows them for the rest
//
// A take or a refund that may have run never goes again, as it would be charged or given back twice; nor does any call
// that was written and not answered in time. What another server has (MOVED, ASK) is sent there by the client, or by
// follow if it was in a pipeline, and of a script that the server refuses because of some keys each key goes by itself
// (refusesKeys). Take asks anew if nothing ran because the server's clock is in another window of a calendar.
func (c *call) retry(err error, texts *[]*script) bool {
	switch {
	case strings.HasPrefix(serverSays(err), "NOSCRIPT") && !c.text:
		// If it was known, that was to another server behind the same proxy.
		if c.known = !c.known && slices.Contains(*texts, c.script); !c.known {
			c.text = true
			*texts = append(*texts, c.script)
		}
	case c.repeated:
		return false
	case replayable(err):
	case c.entry.harmless && classify(err).Class == core.ClassLost:
		c.lost = true
	default:
		return false
	}
	c.repeated = true
	return true
}

// settle gives an entry its reply or error, and wakes its passenger. It reports whether that one had left before.
func (e *entry) settle(reply []int64, err error) (left bool) {
	e.reply, e.err = reply, err
	switch p := e.owner; {
	case p == nil:
	case p.outcome.end(hasAnswer): // before its signal, which may be there already
		p.wake()
	default:
		left = true
	}
	return left
}
