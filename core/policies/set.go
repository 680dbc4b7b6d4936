package policies

import (
	"maps"

	"github.com/weir-go/weir/core/follow"
)

// Set returns the policies of d for the Source of a Guard or Limiter. It shares nothing with d. A policy that keeps the
// numbers of the code has the text "", so that [Layers] knows that d has it.
func (d *Document) Set() *follow.Set {
	s := &follow.Set{
		Revision: d.Version.String(),
		Policies: make(map[string]string, len(d.Policies)),
		Tiers:    map[string]map[string]string{},
		Keys:     map[string]map[string]string{},
	}
	for name, p := range d.Policies {
		s.Policies[name] = p.Text
		if len(p.Tiers) > 0 {
			s.Tiers[name] = maps.Clone(p.Tiers)
		}
		if len(p.Keys) > 0 {
			s.Keys[name] = maps.Clone(p.Keys)
		}
	}
	return s
}
