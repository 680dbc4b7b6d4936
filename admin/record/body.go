package record

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-go/weir/core/policies"
)

// body is a policy as the database has it.
type body struct {
	Text  string            `json:"text,omitempty"`
	Tiers map[string]string `json:"tiers,omitempty"`
	Keys  map[string]string `json:"keys,omitempty"`
	Apps  []string          `json:"apps,omitempty"`
}

func encode(p policies.Policy) (string, error) {
	data, err := json.Marshal(body(p))
	return string(data), err
}

func decode(text string) (policies.Policy, error) {
	var b body
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return policies.Policy{}, fmt.Errorf("a policy in the database is %.100q: %w", text, err)
	}
	return policies.Policy(b), nil
}

// same reports whether two policies say the same. The apps of both are sorted.
func same(p, q policies.Policy) bool {
	return p.Text == q.Text && maps.Equal(p.Tiers, q.Tiers) && maps.Equal(p.Keys, q.Keys) && slices.Equal(p.Apps, q.Apps)
}
