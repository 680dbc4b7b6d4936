package followers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
)

// TestManyMistakesOfARule: ten are listed, and the rest are counted.
func TestManyMistakesOfARule(t *testing.T) {
	t.Parallel()
	var entries []follow.Entry
	set := &follow.Set{Keys: map[string]map[string]string{"api": {}}}
	for n := range 25 {
		set.Keys["api"][fmt.Sprint("user=", n)] = "x"
		entries = append(entries, follow.Entry{
			Policy: "api", Field: "Keys", Key: fmt.Sprint("user=", n), Text: "x", Err: errors.New("not a policy"),
		})
	}
	state := states([]follow.Rule{{Policy: "api"}}, entries, set)[0]
	assert.Equal(t, policies.Code, state.Meaning)
	assert.Contains(t, state.Why, "user=9")
	assert.NotContains(t, state.Why, "user=10")
	assert.True(t, strings.HasSuffix(state.Why, "; and 15 more"), state.Why)
}
