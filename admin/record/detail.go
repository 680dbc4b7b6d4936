package record

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/admin/audit"
)

// Detail describes a changed policy in a row of the audit: each field that has changed, before and after. Keys are
// persons, and so only their number is there.
type Detail struct {
	Text  *[2]string            `json:"text,omitempty"`
	Tiers *[2]map[string]string `json:"tiers,omitempty"`
	Apps  *[2][]string          `json:"apps,omitempty"`
	Keys  *[2]int               `json:"keys,omitempty"`
	// Numbers are those of the key of the row, and Until is the end of a temporary change.
	Numbers *[2]string `json:"numbers,omitempty"`
	Until   *time.Time `json:"until,omitempty"`
	// Cut reports whether something has changed that is too long for it.
	Cut bool `json:"cut,omitempty"`
}

// detail returns the Detail of a course, encoded. The numbers of one key are in it only if the row names the key.
func (c *course) detail(key string) string {
	was, is := valueOf(c.from), valueOf(c.to)
	var d Detail
	if key != "" {
		d.Numbers = &[2]string{was.Keys[key], is.Keys[key]}
	}
	if !c.until.IsZero() {
		until := c.until.UTC()
		d.Until = &until
	}
	if was.Text != is.Text {
		d.Text = &[2]string{was.Text, is.Text}
	}
	if !maps.Equal(was.Tiers, is.Tiers) {
		d.Tiers = &[2]map[string]string{was.Tiers, is.Tiers}
	}
	if !slices.Equal(was.Apps, is.Apps) {
		d.Apps = &[2][]string{was.Apps, is.Apps}
	}
	if !maps.Equal(was.Keys, is.Keys) {
		d.Keys = &[2]int{len(was.Keys), len(is.Keys)}
	}
	if d == (Detail{}) {
		return ""
	}
	for _, without := range []Detail{d, {Text: d.Text, Keys: d.Keys, Numbers: d.Numbers, Until: d.Until, Cut: true}} {
		if text, err := json.Marshal(without); err == nil && len(text) <= audit.MaxDetail {
			return string(text)
		}
	}
	return `{"cut":true}` // a text of odd characters
}
