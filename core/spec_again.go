package core

// Summarized reports whether the reply of the script take is good for Takes of the same cost
// only, because a limit has so much state that its script replies with a summary; see
// [Spec.Again].
func (s Spec) Summarized() bool { return s.p != nil && s.p.summary }

// Again answers t from a refusal that was seen before, if it is certain that the store would
// refuse t as well. It is for stores that decide in a script, and spares the server questions
// that have only one answer.
//
// The argument reply is that of the script take when it refused cost units, or the script upto without
// the number of units taken, for which cost is 1; its first integer is the server's time at that
// moment. The server's clock is now between earliest and latest. If t would be refused at latest,
// it is refused now: what others have taken meanwhile only makes it wait longer. The Result is
// that of the state in the reply at earliest, so that its RetryAfter is never too short. For a
// policy that is [Spec.Summarized], Remaining may leave out units that have come back since.
//
// refused is false, and the store must be asked, if t may be admitted, if it is a peek or has
// Now, and if no script can have written reply. Under a policy that is Summarized it is false,
// too, if t has another cost than the refusal; a t with AtMost counts there as one of cost 1.
// Again does not know what was given back since the reply, nor what was charged.
//
// Again does not allocate for a policy of one or two limits. t.Policy is that of s, whatever
// it says.
func (s Spec) Again(t Take, cost int64, reply []int64, earliest, latest int64) (res Result, refused bool) {
	p := s.p
	switch {
	case p == nil || len(p.algorithms) == 0 || len(reply) != 1+p.reply:
		return Result{}, false
	case t.Cost < 0 || t.Cost == 0 && !t.AtMost || t.Wait < 0 || t.AtMost && t.Wait > 0 || t.Now != 0 || cost < 1:
		return Result{}, false
	case p.summary && (t.AtMost && cost != 1 || !t.AtMost && cost != t.Cost):
		return Result{}, false
	}
	then, rest := reply[0], reply[1:]
	if then <= 0 || earliest < then || latest < earliest || latest > maxNow {
		return Result{}, false
	}
	work, ahead := workspaces.Get().(*workspace), p.ahead(&t)
	defer workspaces.Put(work)
	res = Result{At: earliest, policy: p}
	if len(p.algorithms) > len(res.each) {
		res.more = new(more)
	}
	for i, a := range p.algorithms {
		own, state := work.own[:copy(work.own[:], rest[:a.Reply()])], work.states[i][:]
		rest = rest[len(own):]
		if own[0] < 0 {
			own[0] = -1 - own[0]
		}
		if !a.ParseReply(state, own, then, cost) {
			return Result{}, false
		}
		least := t.Cost
		if t.AtMost {
			least = p.least(&t, i)
		}
		a.Load(state, earliest)
		took := least
		fits := a.Admits(state, earliest, least, ahead)
		if fits { // and so another limit refuses, and nothing is charged
			took = 0
		}
		*res.at(i) = a.Explain(state, earliest, took, ahead, !fits)
		a.Load(state, latest)
		refused = refused || !a.Admits(state, latest, least, ahead)
	}
	if !refused {
		return Result{}, false
	}
	p.summarize(&res, t.Cost, len(p.algorithms))
	return res, true
}
