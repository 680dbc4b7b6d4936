package rows

import (
	"unique"

	"github.com/weir-go/weir/core/internal/algo"
)

// Policy is the part of a policy that a [Map] knows, built by [NewPolicy]: whose keys they are, and
// what their state looks like.
type Policy struct {
	id         [2]uint64 // stands for name and shape
	layout     unique.Handle[string]
	algorithms []algo.Algorithm
	words      int
	varies     bool
	inPlace    bool       // see the constant
	gcra       *algo.GCRA // the one algorithm, if it is of that kind; else nil
	wide       bool       // its states may not fit into a narrow row
}

// NewPolicy builds a Policy. Policies of one name and shape share their keys' state, and
// only those. The states of one layout have the same words, whatever the algorithms' numbers,
// and any of them can say when it expires: so they share a table. There are few layouts, and may
// be many shapes.
func NewPolicy(name, shape, layout string, algorithms []algo.Algorithm) Policy {
	p := Policy{id: identify(name, shape), layout: unique.Make(layout), algorithms: algorithms}
	for _, a := range algorithms {
		p.words += a.Words()
		p.varies = p.varies || a.Len(make([]int64, 1)) != a.Words()
	}
	if len(algorithms) == 1 {
		if g, ok := algorithms[0].(*algo.GCRA); ok {
			p.gcra, p.wide = g, g.Parts() > 1<<partBits
		}
	}
	p.inPlace = !p.varies && p.gcra == nil && p.words <= inPlace
	return p
}

// Words returns the most integers that a state has, of all algorithms together.
func (p *Policy) Words() int { return p.words }
