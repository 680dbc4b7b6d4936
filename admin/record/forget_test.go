package record_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
)

// Keys of the time before go, but for those that hold now.
func TestForgetKeys(t *testing.T) { sqltest.Each(t, forgetKeys) }

func forgetKeys(t *testing.T, location string) {
	c := newClock()
	r := recordtest.OpenAt(t, location, c.now)
	must(t, r, ofKey("pay", "api", "user=1", "blocked", time.Time{}))
	for i := range 210 { // more than are looked at in one transaction
		must(t, r, set("pay", "api", &policies.Policy{
			Text: "1/1m", Keys: map[string]string{"user=1": "blocked", "user=2": fmt.Sprint(i+1, "/1m")},
		}, record.Expect{}))
	}
	must(t, r, ofKey("pay", "api", "user=2", "", time.Time{}))
	must(t, r, ofKey("pay", "api", "user=3", "blocked", c.now().Add(time.Minute)))
	must(t, r, settings(record.Settings{FourEyes: true}, record.Expect{}))
	p, _, err := r.Propose(t.Context(), ofKey("pay", "api", "user=4", "blocked", time.Time{}), nil)
	require.NoError(t, err)
	open, _, err := r.Propose(t.Context(), ofKey("pay", "api", "user=5", "blocked", time.Time{}), nil)
	require.NoError(t, err)
	require.NoError(t, r.Reject(t.Context(), approval(p.ID, ben)))
	c.sleep(time.Hour)
	_, err = r.EndDue(t.Context())
	require.NoError(t, err)
	later := c.now()
	c.sleep(time.Hour)
	n, err := r.ForgetKeys(t.Context(), later)
	require.NoError(t, err)
	assert.Equal(t, int64(210+1+1), n, "versions with user=2, the one with user=3, and a proposal; the end is too young")

	past, err := r.History(t.Context(), "pay", "api", 0, 1000)
	require.NoError(t, err)
	for _, version := range past {
		if version.Policy != nil {
			assert.Equal(t, map[string]string{"user=1": "blocked"}, version.Policy.Keys, version.Revision)
		}
	}
	rejected, err := r.Proposal(t.Context(), p.ID)
	require.NoError(t, err)
	assert.Empty(t, rejected.Edits[0].Patch.Keys)
	waits, err := r.Proposal(t.Context(), open.ID)
	require.NoError(t, err)
	assert.NotEmpty(t, waits.Edits[0].Patch.Keys)
	n, err = r.ForgetKeys(t.Context(), c.now())
	require.NoError(t, err)
	assert.Equal(t, int64(1), n, "the temporary change")
	n, err = r.ForgetKeys(t.Context(), c.now())
	require.NoError(t, err)
	assert.Zero(t, n)
}
