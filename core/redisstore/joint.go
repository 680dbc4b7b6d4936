package redisstore

import (
	"crypto/rand"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
)

// joint is whether one script may decide for many keys of a node. What looks like one server may
// be a proxy before several, which sends a command to the one that has its first key: a script for
// many keys would leave the state of the others where no script for one of them finds it, and each
// limit would hold twice. So keys of the store's own are tried before, and each minute again.
type joint struct {
	state atomic.Int32
	next  atomic.Int64 // when to try, as time since started
	busy  atomic.Bool
}

const (
	untried int32 = iota
	together
	apart // for good
)

const (
	tryEvery = time.Minute
	tryAgain = time.Second // after a failure that says nothing
	// tryKeys have the same server by chance once in 30 000 times if there are two.
	tryKeys = 16
)

// keys is for how many keys a script may decide.
func (n *node) keys() int {
	if n.joint.state.Load() == together {
		return n.store.keys
	}
	return 1
}

// tryJoint finds out what keys answers, beside the flights.
func (n *node) tryJoint() {
	if n.store.keys < 2 || n != n.store.only || n.joint.state.Load() == apart ||
		int64(time.Since(started)) < n.joint.next.Load() || !n.joint.busy.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer n.joint.busy.Store(false)
		n.try()
	}()
}

// apart keeps scripts for many keys away from now on.
func (n *node) apart() { n.joint.state.Store(apart) }

// try takes a unit of each of several keys with one script. Then each key by itself has to be used up,
// as its policy has no more than one unit.
func (n *node) try() {
	again := tryAgain
	if n.answers() {
		again = tryEvery
	}
	n.joint.next.Store(int64(time.Since(started) + again))
}

// answers reports whether try has come to an end.
func (n *node) answers() bool {
	policy := core.MustParse("weir-try: 1/1m")
	program, err := n.store.programs.of(n.store.names, policy)
	if err != nil {
		return true // not on this server
	}
	var takes [tryKeys]core.Take
	nonce := rand.Text()
	for i := range takes {
		takes[i] = core.Take{Policy: policy, Key: nonce + strconv.Itoa(i), Cost: 1}
	}
	if admitted, refused := n.takeAll(program, takes[:], tryKeys); admitted < tryKeys {
		return refused > 0 || n.joint.state.Load() == apart
	}
	switch admitted, refused := n.takeAll(program, takes[:], 1); {
	case admitted > 0:
		n.apart()
	case refused == tryKeys:
		n.joint.state.CompareAndSwap(untried, together)
	default:
		return false
	}
	return true
}

// takeAll asks for several at once, with scripts for so many keys, and counts the answers.
func (n *node) takeAll(program *program, takes []core.Take, keys int) (admitted, refused int) {
	f := &flight{lane: n.lanes[deciding], sent: time.Now(), entries: len(takes), landed: true}
	all := make([]passenger, len(takes)) // whom nobody has to tell
	for i, take := range takes {
		p := &all[i]
		p.entry = entry{
			key: program.name(take.Key), script: program.take, args: program.unit,
			shares: true, program: program, rider: p,
		}
		p.take = take
		f.riders = append(f.riders, p)
	}
	f.group(keys)
	f.relay()
	for i := range all {
		p := &all[i]
		res, err := p.res, p.err
		if err == nil && !p.decided {
			res, _, err = p.take.Policy.Spec().Explain(p.take, p.reply)
		}
		switch {
		case err != nil:
		case res.Allowed():
			admitted++
		default:
			refused++
		}
	}
	return admitted, refused
}
