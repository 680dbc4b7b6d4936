package redisstore

import (
	"crypto/rand"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
)

// proxySearch finds out whether one script may decide for many keys of a node. What looks like one server may be a proxy
// before several, which sends a command to the one that has its first key: a script for many keys would leave the state
// of the others where no script for one of them finds it, and each limit would hold twice. So such a script is tried with
// keys of the store's own before it is used, and again when a connection was lost, as the next one may lead elsewhere.
type proxySearch struct {
	state   atomic.Int32
	lost    atomic.Uint32 // how many connections had been lost when the state was found
	next    atomic.Int64  // when to look whether it still holds, or to search again, as time since started
	running atomic.Bool
}

const (
	notSearched int32 = iota
	noProxy
	someProxy // for good
)

const (
	// lookAgain is the time between two looks at what has changed.
	lookAgain = time.Second
	// proxyKeys have the same server by chance once in 30 000 times if there are two.
	proxyKeys = 16
)

// found keeps scripts for many keys away from now on.
func (p *proxySearch) found() { p.state.Store(someProxy) }

// maxKeys returns the number of keys for which one script may decide.
func (n *node) maxKeys() int {
	if n.proxy.state.Load() == noProxy {
		return n.store.keys
	}
	return 1
}

// lookForProxy begins a search beside the flights, if one is due: the first one, and one after a connection was lost.
// Until such a search has ended, what the one before has found holds: a process that is short of time loses connections,
// too, and must not be slowed down for that.
func (n *node) lookForProxy() {
	p := &n.proxy
	if n.store.keys < 2 || n != n.store.only || p.state.Load() == someProxy ||
		int64(time.Since(started)) < p.next.Load() || !p.running.CompareAndSwap(false, true) {
		return
	}
	if p.state.Load() == noProxy && n.lostConnections() == p.lost.Load() {
		n.lookLater()
		return
	}
	go func() {
		defer n.lookLater()
		n.searchProxy()
	}()
}

func (n *node) lookLater() {
	n.proxy.next.Store(int64(time.Since(started) + lookAgain))
	n.proxy.running.Store(false)
}

// lostConnections returns how many connections the client has closed so far.
func (n *node) lostConnections() uint32 {
	stats := n.direct.PoolStats()
	lost := stats.StaleConns
	if stats.PipelineStats != nil {
		lost += stats.PipelineStats.StaleConns
	}
	return lost
}

// searchProxy takes a unit of each of several keys with one script. Then each key by itself has to be used up, as its
// policy has no more than one unit.
func (n *node) searchProxy() {
	lost := n.lostConnections()
	policy := core.MustParse("weir-try: 1/1m")
	program, err := n.store.programs.of(n.store.names, policy)
	if err != nil {
		return // not on this server
	}
	var takes [proxyKeys]core.Take
	nonce := rand.Text()
	for i := range takes {
		takes[i] = core.Take{Policy: policy, Key: nonce + strconv.Itoa(i), Cost: 1}
	}
	if admitted, _ := n.takeAll(program, takes[:], proxyKeys); admitted < proxyKeys {
		return
	}
	switch admitted, refused := n.takeAll(program, takes[:], 1); {
	case admitted > 0:
		n.proxy.found()
	case refused == proxyKeys:
		n.proxy.lost.Store(lost)
		n.proxy.state.CompareAndSwap(notSearched, noProxy)
	}
}

// takeAll asks for several at once, with scripts for so many keys, and counts the answers.
func (n *node) takeAll(program *program, takes []core.Take, keys int) (admitted, refused int) {
	f := &flight{lane: n.lanes[deciding], sent: time.Now(), entries: len(takes), landed: true, search: true}
	all := make([]passenger, len(takes)) // for which nobody waits
	for i, take := range takes {
		p := &all[i]
		p.entry = entry{
			key: program.name(take.Key), script: program.take, args: program.unit,
			mayShare: true, program: program, owner: p,
		}
		p.take = take
		f.passengers = append(f.passengers, p)
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
