package algo

// leakyBucket is a queue that drips: a request that fits is let in at once and told
// to wait until all before it have left. Departures are spaced by period/rate.
//
// Its arithmetic is that of [gcra] without debt: the level of the meter is the
// length of the queue. What differs is what an admitted request is told.
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

func (a leakyBucket) Explain(s []int64, now, cost, _ int64, refused bool) Answer {
	r := a.gcra.Explain(s, now, cost, 0, refused)
	if !refused && cost > 0 {
		r.Delay = level(s, now).sub(a.weight(cost), a.l).ceil()
	}
	return r
}

// Admits does not look ahead: the whole bucket is a queue already.
func (a leakyBucket) Admits(s []int64, now, cost, _ int64) bool {
	return a.gcra.Admits(s, now, cost, 0)
}

// AppendParams does not look ahead either.
func (a leakyBucket) AppendParams(b []int64, cost, _, guess int64) []int64 {
	return a.gcra.AppendParams(b, cost, 0, guess)
}

// somebodyWaits is a calm that no level has.
var somebodyWaits = span{w: -1}

// Refund reckons with somebody waiting at any level.
func (a leakyBucket) Refund(s []int64, now, units int64, r Receipt) bool {
	return a.refund(s, now, units, r, somebodyWaits)
}

// AppendRefund reckons with the same.
func (a leakyBucket) AppendRefund(b []int64, units int64, r Receipt, _ int64) []int64 {
	return a.appendRefund(b, units, r, somebodyWaits)
}
