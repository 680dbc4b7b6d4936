package record_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
)

// somePolicy draws a policy, or nil.
func somePolicy(t *rapid.T, label string) *policies.Policy {
	texts := rapid.SampledFrom([]string{"1/1m", "2/1m", "3/1m; shadow"})
	p := policies.Policy{Text: rapid.SampledFrom([]string{"", "1/1m", "2/1m; shadow"}).Draw(t, label+" text")}
	if m := rapid.MapOfN(rapid.SampledFrom([]string{"pro", "free"}), texts, 0, 2).Draw(t, label+" tiers"); len(m) > 0 {
		p.Tiers = m
	}
	if m := rapid.MapOfN(rapid.SampledFrom([]string{"user=1", "user=2", "user=3"}), texts, 0, 3).Draw(t, label+" keys"); len(m) > 0 {
		p.Keys = m
	}
	if apps := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 2, rapid.ID[string]).Draw(t, label+" apps"); len(apps) > 0 {
		p.Apps = slices.Sorted(slices.Values(apps))
	}
	return zeroIsNone(&p)
}

func zeroIsNone(p *policies.Policy) *policies.Policy {
	if p == nil || p.Text == "" && len(p.Tiers) == 0 && len(p.Keys) == 0 && len(p.Apps) == 0 {
		return nil
	}
	return p
}

// equal reports whether two policies say the same, where one that says nothing is none.
func equal(p, q *policies.Policy) bool {
	p, q = zeroIsNone(p), zeroIsNone(q)
	if p == nil || q == nil {
		return p == q
	}
	return p.Text == q.Text && maps.Equal(p.Tiers, q.Tiers) && maps.Equal(p.Keys, q.Keys) &&
		slices.Equal(slices.Sorted(slices.Values(p.Apps)), slices.Sorted(slices.Values(q.Apps)))
}

func copied(p *policies.Policy) *policies.Policy {
	if p == nil {
		return nil
	}
	return &policies.Policy{Text: p.Text, Tiers: maps.Clone(p.Tiers), Keys: maps.Clone(p.Keys), Apps: slices.Clone(p.Apps)}
}

func TestPatchMakesOnePolicyOfAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := somePolicy(t, "before"), somePolicy(t, "after")
		was := copied(before)
		p := record.PatchOf(before, after)
		if got := p.On(before); !equal(got, after) {
			t.Fatalf("%+v on %+v is %+v, not %+v", p, before, got, after)
		}
		if !equal(was, before) {
			t.Fatal("it has changed what it was made of")
		}
		if p.Empty() != equal(before, after) {
			t.Fatalf("%+v is empty: %t", p, p.Empty())
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again record.Patch
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		if got := again.On(before); !equal(got, after) {
			t.Fatalf("as JSON it makes %+v, not %+v", got, after)
		}
	})
}

// The base of a patch moves when what it changes was changed, and not when something else was.
func TestBaseOfPatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after, now := somePolicy(t, "before"), somePolicy(t, "after"), somePolicy(t, "now")
		p := record.PatchOf(before, after)
		moved := record.PatchOf(before, now)
		whole := func(p record.Patch) bool { return p.Text != nil || p.Tiers != nil || p.Apps != nil }
		touches := whole(p) && whole(moved)
		for key := range p.Keys {
			_, also := moved.Keys[key]
			touches = touches || also
		}
		if same := p.Base(before) == p.Base(now); same == touches {
			t.Fatalf("%+v and %+v: the base is the same: %t", p, moved, same)
		}
	})
}

func TestPatchToNothingDeletes(t *testing.T) {
	none := ""
	assert.Nil(t, record.Patch{Text: &none}.On(&policies.Policy{Text: "1/1m"}))
	assert.NotNil(t, record.Patch{Text: &none}.On(&policies.Policy{Text: "1/1m", Apps: []string{"a"}}))
	assert.Nil(t, record.Patch{Keys: map[string]string{"user=1": ""}}.On(&policies.Policy{Keys: map[string]string{"user=1": "1/1m"}}))
	assert.Nil(t, record.Patch{}.On(nil))
}

// Beneath returns the policy that was there before the temporary changes.
func TestBeneathTemporary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := somePolicy(t, "base")
		var all []record.Temporary
		now := base
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "user=1", "user=9"}), 0, 3, rapid.ID[string]).Draw(t, "parts") {
			text := rapid.SampledFrom([]string{"", "9/1m"}).Draw(t, "text")
			former := ""
			switch {
			case base != nil && key == "":
				former = base.Text
			case base != nil:
				former = base.Keys[key]
			}
			all = append(all, record.Temporary{Key: key, Former: former, Text: text})
			if key == "" {
				now = record.Patch{Text: &text}.On(now)
			} else {
				now = record.Patch{Keys: map[string]string{key: text}}.On(now)
			}
		}
		if got := record.Beneath(now, all); !equal(got, base) {
			t.Fatalf("beneath %+v there is %+v, not %+v", now, got, base)
		}
	})
}
