package record_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
)

func open(t *testing.T, location string) *record.Record {
	t.Helper()
	r, err := record.Open(t.Context(), location)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

func set(name, text string, expect record.Expect) record.Change {
	return record.Change{
		App: "pay", Who: "anna", Action: "set",
		Edits: []record.Edit{{Name: name, Policy: &policies.Policy{Text: text}, Expect: expect}},
	}
}

// Two people change one policy: the second learns of the first (FAULTS 94).
func TestStaleIsRefused(t *testing.T) { sqltest.Each(t, staleIsRefused) }

func staleIsRefused(t *testing.T, location string) {
	r := open(t, location)
	_, err := r.Change(t.Context(), set("api", "100/1m", record.Expect{Absent: true}))
	require.NoError(t, err)
	outcome, err := r.Change(t.Context(), set("api", "200/1m", record.Expect{Revision: 1}))
	require.NoError(t, err)
	assert.Equal(t, policies.Version{Generation: 1, Revision: 2}, outcome.Head.Version)

	_, err = r.Change(t.Context(), set("api", "300/1m", record.Expect{Revision: 1}))
	var stale *record.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, int64(2), stale.Current)
	assert.Contains(t, err.Error(), "changed by anna")
	_, err = r.Change(t.Context(), set("api", "300/1m", record.Expect{Absent: true}))
	require.ErrorAs(t, err, &stale)

	document, encoded, err := r.Document(t.Context(), "pay")
	require.NoError(t, err)
	assert.Equal(t, "200/1m", document.Policies["api"].Text)
	head, known, err := r.Head(t.Context(), "pay")
	require.NoError(t, err)
	assert.True(t, known)
	assert.Equal(t, record.Head{App: "pay", Version: document.Version, Digest: record.Digest(encoded)}, head)
}
