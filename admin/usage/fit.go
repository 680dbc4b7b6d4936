package usage

// What things take in memory, about: with their places in maps.
const (
	policySize  = 420
	tierSize    = 160
	processSize = 160
	keySize     = 40
	gapSize     = 16
)

// fixed returns the memory that an app takes, about, but for its minutes and keys.
func (a *app) fixed() int {
	n := 0
	for name, p := range a.policies {
		n += policySize + len(name)
		for i := range p.tiers {
			n += tierSize + len(p.tiers[i].name)
		}
	}
	for id, p := range a.processes {
		n += processSize + len(id) + cap(p.sums)
	}
	return n
}

// size returns the memory that an app takes, about.
func (a *app) size() int {
	n := a.fixed() + (cap(a.gaps)+cap(a.ended))*gapSize
	for _, p := range a.policies {
		n += cap(p.data)
		for _, t := range []*top{&p.busiest, &p.refused} {
			for i := range t.keys {
				n += keySize + len(t.keys[i].Key)
			}
		}
	}
	return n
}

// fit leaves out what has no room, to some less than the budget, so that it is not to be done again at once: first the
// minutes of some time ago, then the time before.
func (a *app) fit() {
	if a.size() <= a.budget {
		return
	}
	for _, back := range []struct{ fine, kept int64 }{
		{12 * 60, kept}, {6 * 60, kept}, {3 * 60, kept}, {60, kept}, {60, 12 * 60}, {60, 6 * 60}, {60, 3 * 60}, {60, 60}, {30, 30}, {10, 10}, {1, 1},
	} {
		a.fine, a.kept = max(a.fine, a.minute-back.fine), max(a.kept, a.minute-back.kept)
		for _, p := range a.policies {
			p.rewrite(a.kept, a.fine)
		}
		if a.size() <= a.budget*9/10 {
			return
		}
	}
	for _, p := range a.policies {
		p.busiest, p.refused = top{}, top{}
	}
}
