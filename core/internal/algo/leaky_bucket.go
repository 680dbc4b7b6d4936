package algo

// leakyBucket is a queue that drips: a request that fits is let in at once, and waits
// until all before it have left. Departures are spaced by period/rate.
//
// Its arithmetic is that of [gcra] without debt: the level of the meter is the
// length of the queue. It differs in the delay of an admitted request.
//
// It is the leaky bucket as a queue (Turner, 1986), as opposed to the meter.
type leakyBucket struct{ *gcra }

func newLeakyBucket(p Params) (Algorithm, error) {
	queue, err := meter(p)
	if err != nil {
		return nil, err
	}
	return leakyBucket{queue}, nil
}

// Admits does not reserve: the whole bucket is a queue already.
func (a leakyBucket) Admits(s []int64, now, cost, _ int64) bool {
	return a.gcra.Admits(s, now, cost, 0)
}

// anyLevel is below every level: callers may be waiting whatever the level is.
var anyLevel = span{w: -1}

// Refund takes any level for a queue.
func (a leakyBucket) Refund(s []int64, now, units int64, r Receipt) bool {
	return a.refund(s, now, units, a.charged(r), anyLevel)
}

func (a leakyBucket) Explain(s []int64, now, cost, _ int64, refused bool) Answer {
	r := a.gcra.Explain(s, now, cost, 0, refused)
	if !refused && cost > 0 {
		r.Wait = level(s, now).sub(a.weight(cost), a.l).ceil()
	}
	return r
}

// AppendTake does not reserve either.
func (a leakyBucket) AppendTake(b []int64, cost, _, guess int64) []int64 {
	return a.gcra.AppendTake(b, cost, 0, guess)
}

// AppendRefund takes any level for a queue as well.
func (a leakyBucket) AppendRefund(b []int64, units int64, r Receipt, _ int64) []int64 {
	return a.appendRefund(b, units, a.charged(r), anyLevel)
}
