package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/weir-go/weir/core/policies"
)

// Patch changes parts of a policy, and leaves the others as they are. The zero Patch changes nothing. A policy that has
// nothing left is none: it is deleted.
type Patch struct {
	Text  *string            `json:"text,omitempty"` // "" takes the text away
	Tiers *map[string]string `json:"tiers,omitempty"`
	Apps  *[]string          `json:"apps,omitempty"`
	// Keys are texts by the text of a key. "" takes the numbers of a key away.
	Keys map[string]string `json:"keys,omitempty"`
}

// PatchOf returns the Patch that makes after of before. Either may be nil: there is no policy then.
func PatchOf(before, after *policies.Policy) Patch {
	b, a := valueOf(before), valueOf(after)
	var p Patch
	if a.Text != b.Text {
		p.Text = &a.Text
	}
	if !maps.Equal(a.Tiers, b.Tiers) {
		tiers := map[string]string{} // a nil one would be null as JSON, which is no change
		maps.Copy(tiers, a.Tiers)
		p.Tiers = &tiers
	}
	if was, now := sorted(b.Apps), sorted(a.Apps); !slices.Equal(was, now) {
		apps := append([]string{}, now...)
		p.Apps = &apps
	}
	for key, text := range a.Keys {
		if b.Keys[key] != text {
			p.key(key, text)
		}
	}
	for key := range b.Keys {
		if a.Keys[key] == "" {
			p.key(key, "")
		}
	}
	return p
}

// patchOfPart returns the Patch that changes the text of a policy, or that of a key of it: "" is no key.
func patchOfPart(key, text string) Patch {
	if key == "" {
		return Patch{Text: &text}
	}
	return Patch{Keys: map[string]string{key: text}}
}

func (p *Patch) key(key, text string) {
	if p.Keys == nil {
		p.Keys = map[string]string{}
	}
	p.Keys[key] = text
}

// Empty reports whether p changes nothing.
func (p Patch) Empty() bool {
	return p.Text == nil && p.Tiers == nil && p.Apps == nil && len(p.Keys) == 0
}

// On returns a policy with the changes of p, nil if nothing is left of it. It does not change the policy.
func (p Patch) On(policy *policies.Policy) *policies.Policy {
	q := valueOf(policy)
	if p.Text != nil {
		q.Text = *p.Text
	}
	if p.Tiers != nil {
		q.Tiers = *p.Tiers
	}
	if p.Apps != nil {
		q.Apps = sorted(*p.Apps)
	}
	if len(p.Keys) > 0 {
		q.Keys = maps.Clone(q.Keys)
		if q.Keys == nil {
			q.Keys = map[string]string{}
		}
		for key, text := range p.Keys {
			if text == "" {
				delete(q.Keys, key)
			} else {
				q.Keys[key] = text
			}
		}
	}
	return unlessZero(q)
}

// Base returns a digest of the parts of a policy that p changes. Text, tiers and apps are one part, since people read
// them together; each key is one. What changes other parts leaves it the same.
func (p Patch) Base(policy *policies.Policy) string {
	q := valueOf(policy)
	type whole struct {
		Text  string
		Tiers map[string]string
		Apps  []string
	}
	base := struct {
		Whole *whole
		Keys  map[string]string
	}{Keys: map[string]string{}}
	if p.Text != nil || p.Tiers != nil || p.Apps != nil {
		base.Whole = &whole{Text: q.Text, Apps: sorted(q.Apps)}
		if len(q.Tiers) > 0 {
			base.Whole.Tiers = q.Tiers
		}
	}
	for key := range p.Keys {
		base.Keys[key] = q.Keys[key]
	}
	data, err := json.Marshal(base) // which sorts the names
	if err != nil {
		panic("record: " + err.Error()) // texts always have JSON
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// valueOf returns the policy that p points to, or the zero Policy, which says as much as none.
func valueOf(p *policies.Policy) policies.Policy {
	if p == nil {
		return policies.Policy{}
	}
	return *p
}

// unlessZero returns nil in the place of a policy that says nothing.
func unlessZero(p policies.Policy) *policies.Policy {
	if p.Text == "" && len(p.Tiers) == 0 && len(p.Keys) == 0 && len(p.Apps) == 0 {
		return nil
	}
	return &p
}

func sorted(apps []string) []string {
	if len(apps) == 0 {
		return nil
	}
	return slices.Sorted(slices.Values(apps))
}

// sortedNames returns the names of policies in their order.
func sortedNames[P any](named map[string]P) []string { return slices.Sorted(maps.Keys(named)) }
