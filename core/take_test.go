package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core"
)

// The methods of the Outcome are those of the Result that embeds it, but for String.
func TestResultSaysMoreThanItsOutcome(t *testing.T) {
	for want, res := range map[string]core.Result{
		"refused, 0 of 0 left, reset in 0s": {},
		"admitted, 9 of 10 left, reset in 1s": {
			Outcome: core.Admitted, Limit: 10, Remaining: 9, ResetAfter: time.Second,
		},
		"refused, 0 of 10 left, reset in 10s, retry in 1s": {
			Limit: 10, ResetAfter: 10 * time.Second, RetryAfter: time.Second,
		},
		"at-limit, 0 of 10 left, reset in 12s, delay 2s, without the store": {
			Outcome: core.AtLimit, Local: true, Limit: 10, ResetAfter: 12 * time.Second, Delay: 2 * time.Second,
		},
	} {
		assert.Equal(t, want, res.String())
		assert.Equal(t, want, fmt.Sprint(res))
	}
}

func TestAllowed(t *testing.T) {
	for outcome, want := range map[core.Outcome]bool{core.Admitted: true, core.AtLimit: true, core.Refused: false, core.Never: false} {
		assert.Equal(t, want, outcome.Allowed(), outcome)
		assert.Equal(t, want, core.Result{Outcome: outcome}.Allowed(), outcome)
	}
}
