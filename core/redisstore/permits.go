package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/lua"
)

var (
	acquireScript = newScript(lua.Acquire())
	renewScript   = newScript(lua.Renew())
	releaseScript = newScript(lua.Release())
)

// A script renews or releases at most maxIDs permits of maxPlaces in all, or one, because
// everybody else on the server waits for it.
const (
	maxIDs    = 64
	maxPlaces = core.MaxPermitWeight
)

// Acquire implements [core.PermitStore]. Unlike Take it may send its script a second
// time, within the deadline, if the connection broke before the reply came: acquiring
// twice is acquiring once, and so a reply that was lost leaves no permit that nobody
// knows of. If the second try fails too, or there was no time for one, the permit may be
// held until its lease ends: a core.StoreError whose MaybeExecuted is true says so, and so does
// the context's error of a caller who left. Release it then.
func (s *Store) Acquire(ctx context.Context, p core.Permit) (core.Result, error) {
	if err := p.Validate(); err != nil {
		return core.Result{}, err
	}
	now := time.Now()
	e := s.permits(acquireScript, []core.Permit{p}, []int{0})
	e.policy = p.Policy
	n, err := s.node(ctx, e.key)
	if err != nil {
		return core.Result{}, err
	}
	reply, err := n.lanes[deciding].ask(ctx, now, &e, nil, nil)
	var failed *core.StoreError
	if errors.As(err, &failed) && strings.HasPrefix(serverSays(failed.Err), deniedInScript) {
		// The right that is missing may be that of a command after the first that wrote.
		err = &core.StoreError{Class: failed.Class, MaybeExecuted: true, Err: failed.Err}
	}
	if err != nil {
		return core.Result{}, n.named(err)
	}
	res, err := p.Explain(reply)
	if err != nil {
		return core.Result{}, n.named(&core.StoreError{Class: core.ClassReply, MaybeExecuted: true, Err: err})
	}
	return res, nil
}

// Renew implements [core.PermitStore]. It needs one script for up to 64 permits of a key,
// and one pipeline for up to 256 scripts; each script fails for itself.
func (s *Store) Renew(ctx context.Context, permits []core.Permit) (lost []core.Permit, err error) {
	err = s.each(ctx, renewing, renewScript, permits, func(e *entry, of []int) {
		reply := e.reply
		if len(reply) != 1+len(of) {
			e.err = &core.StoreError{Class: core.ClassReply, MaybeExecuted: true, Err: errReply}
			return
		}
		for k, i := range of {
			if reply[1+k] == 0 {
				lost = append(lost, permits[i])
			}
		}
	})
	return lost, err
}

var errReply = errors.New("redisstore: the reply is not one of a script for permits")

// Release implements [core.PermitStore]. It needs as many scripts and pipelines as Renew.
func (s *Store) Release(ctx context.Context, permits []core.Permit) error {
	return s.each(ctx, releasing, releaseScript, permits, func(*entry, []int) {})
}

// each runs a script for permits, and calls answered for each entry that was answered,
// with the indices of its permits.
func (s *Store) each(ctx context.Context, k kind, script *script, permits []core.Permit, answered func(*entry, []int)) error {
	for i := range permits {
		if err := permits[i].Validate(); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	groups := group(permits)
	entries := make([]entry, len(groups))
	for g, of := range groups {
		entries[g] = s.permits(script, permits, of)
	}
	nodes := s.askAll(ctx, k, entries)
	errs := make([]error, len(permits))
	for g, of := range groups {
		e := &entries[g]
		if e.err == nil {
			answered(e, of)
			e.err = nodes[g].named(e.err)
		}
		for _, i := range of {
			errs[i] = e.err
		}
	}
	return batchError(errs)
}

// group divides permits into those that one script can do, and returns their indices.
func group(permits []core.Permit) (all [][]int) {
	type kind struct {
		policy core.Policy
		key    string
		now    int64
	}
	type open struct {
		at     int // in all
		places int64
	}
	groups := make(map[kind]open)
	for i := range permits {
		p := &permits[i]
		k := kind{p.Policy, p.Key, p.Now}
		g, known := groups[k]
		if !known || len(all[g.at]) == maxIDs || g.places+p.Places() > maxPlaces {
			g = open{at: len(all)}
			all = append(all, nil)
		}
		all[g.at] = append(all[g.at], i)
		g.places += p.Places()
		groups[k] = g
	}
	return all
}

// permits returns the entry for some permits, which agree in all but id and weight.
func (s *Store) permits(script *script, permits []core.Permit, of []int) entry {
	p := &permits[of[0]]
	e := entry{
		key:      s.names.Of(s.names.Before(p.Policy, p.Policy.Spec().PermitShape()), p.Key),
		script:   script,
		args:     make([]any, 0, 3+2*len(of)),
		harmless: true,
	}
	if script != releaseScript { // which goes by the ids alone
		e.args = append(e.args, texts(p.Params())...)
	}
	for _, i := range of {
		e.args = append(e.args, permits[i].ID)
		if script != releaseScript {
			e.args = append(e.args, strconv.FormatInt(permits[i].Places(), 10))
		}
		e.weight += permits[i].Places()
	}
	return e
}
