package manage_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// fourEyed returns an admin with the app "pay" of four eyes and its policy "api".
func fourEyed(t *testing.T, location string) (a *admin, root *rights.Person) {
	t.Helper()
	a = start(t, location)
	root = a.person("root", rights.Admin)
	_, err := a.PutApp(t.Context(), root, "pay", adminapi.Settings{FourEyes: true}, create)
	require.NoError(t, err)
	emergency := create
	emergency.Emergency = true
	_, err = a.PutPolicy(t.Context(), root, "pay", "api", text("1/1m"), emergency)
	require.NoError(t, err)
	return a, root
}

// grant gives the roles in the app "pay", and takes those that were there.
func (a *admin) grant(roles map[*rights.Person]rights.Role) error {
	var grants []people.Grant
	for who, role := range roles {
		grants = append(grants, people.Grant{Kind: people.KindPerson, Subject: who.ID, Role: role})
	}
	_, err := a.people.SetGrants(a.t.Context(), people.By{Person: people.Console(), Reason: "for a test"}, "pay", grants, people.Any)
	return err
}

// Of two people who approve and reject a proposal at once, one decides it, and what holds is what that one has said.
func TestApproveAndRejectAtOnce(t *testing.T) { sqltest.Each(t, approveAndReject) }

func approveAndReject(t *testing.T, location string) {
	a, root := fourEyed(t, location)
	ctx := t.Context()
	anna, ben, carl := a.person("anna", rights.Owner, "pay"), a.person("ben", rights.Owner, "pay"), a.person("carl", rights.Owner, "pay")
	last := "1/1m"
	for _, next := range []string{"2/1m", "3/1m", "4/1m", "5/1m", "6/1m", "7/1m"} {
		proposed, err := a.PutPolicy(ctx, anna, "pay", "api", text(next), anyway)
		require.NoError(t, err)
		require.NotEmpty(t, proposed.Proposal)
		var approved, rejected error
		var both sync.WaitGroup
		both.Go(func() { _, approved = a.Approve(ctx, ben, proposed.Proposal, "fine") })
		both.Go(func() { rejected = a.Reject(ctx, carl, proposed.Proposal, "not now") })
		both.Wait()
		state := "rejected"
		if approved == nil {
			state, last = "approved", next
			assert.Equal(t, http.StatusConflict, status(rejected), "%v", rejected)
		} else {
			assert.Equal(t, http.StatusConflict, status(approved), "%v", approved)
			assert.NoError(t, rejected)
		}
		held, err := a.Policy(ctx, root, "pay", "api")
		require.NoError(t, err)
		assert.Equal(t, last, held.Policy.Text)
		list, err := a.Proposals(ctx, root, manage.WhichProposals{Limit: 1})
		require.NoError(t, err)
		assert.Equal(t, state, list.Proposals[0].State)
	}
}

// Somebody who is no owner any more rejects nothing, and has looked at no emergency for the owners, although the request
// began when they were one; the author of a proposal takes it back as long as they see the app.
func TestRejectAndSeenOfThoseWhoAreNoneAnyMore(t *testing.T) { sqltest.Each(t, rejectNoMore) }

func rejectNoMore(t *testing.T, location string) {
	a, root := fourEyed(t, location)
	ctx := t.Context()
	anna, ben := a.person("anna", rights.Owner, "pay"), a.person("ben", rights.Owner, "pay")
	propose := func(next string) string {
		proposed, err := a.PutPolicy(ctx, anna, "pay", "api", text(next), anyway)
		require.NoError(t, err)
		return proposed.Proposal
	}
	first, second := propose("2/1m"), propose("3/1m")
	app, err := a.App(ctx, root, "pay")
	require.NoError(t, err)
	seq := app.Emergencies[0].Seq

	require.NoError(t, a.grant(map[*rights.Person]rights.Role{anna: rights.Viewer, ben: rights.Viewer}))
	assert.Equal(t, http.StatusForbidden, status(a.Reject(ctx, ben, first, "not now")))
	assert.Equal(t, http.StatusForbidden, status(a.Seen(ctx, ben, seq, "")))
	require.NoError(t, a.Reject(ctx, anna, second, "a mistake"))

	require.NoError(t, a.grant(nil))
	for _, who := range []*rights.Person{anna, ben} {
		assert.Equal(t, http.StatusNotFound, status(a.Reject(ctx, who, first, "not now")))
		assert.Equal(t, http.StatusNotFound, status(a.Seen(ctx, who, seq, "")))
	}
	list, err := a.Proposals(ctx, root, manage.WhichProposals{State: "open"})
	require.NoError(t, err)
	require.Len(t, list.Proposals, 1)
	assert.Equal(t, first, list.Proposals[0].ID)
	app, err = a.App(ctx, root, "pay")
	require.NoError(t, err)
	assert.Len(t, app.Emergencies, 1)
}

// Of somebody who rejects a proposal, or looks at an emergency, at the moment at which they become a viewer, the audit has
// nothing after that.
func TestDemotedAtTheSameMoment(t *testing.T) { sqltest.Each(t, demotedAtOnce) }

func demotedAtOnce(t *testing.T, location string) {
	a, root := fourEyed(t, location)
	ctx := t.Context()
	anna, ben := a.person("anna", rights.Owner, "pay"), a.person("ben", rights.Owner, "pay")
	for range 5 {
		require.NoError(t, a.grant(map[*rights.Person]rights.Role{anna: rights.Owner, ben: rights.Owner}))
		proposed, err := a.PutPolicy(ctx, anna, "pay", "api", text("2/1m"), anyway)
		require.NoError(t, err)
		_, err = a.PutPolicy(ctx, root, "pay", "other", text("1/1m"), manage.Write{Any: true, Emergency: true, Reason: "quick"})
		require.NoError(t, err)
		_, err = a.DeletePolicy(ctx, root, "pay", "other", manage.Write{Any: true, Emergency: true, Reason: "quick"})
		require.NoError(t, err)
		emergencies, err := a.Audit(ctx, root, manage.WhichAudit{App: "pay", Emergency: true, Limit: 1})
		require.NoError(t, err)
		var rejected, seen error
		var all sync.WaitGroup
		all.Go(func() { rejected = a.Reject(ctx, ben, proposed.Proposal, "not now") })
		all.Go(func() { seen = a.Seen(ctx, ben, emergencies.Rows[0].Seq, "") })
		all.Go(func() {
			assert.NoError(t, a.grant(map[*rights.Person]rights.Role{anna: rights.Owner, ben: rights.Viewer}))
		})
		all.Wait()
		rows, err := a.Audit(ctx, root, manage.WhichAudit{App: "pay", Limit: 10})
		require.NoError(t, err)
		did := map[string]bool{}
		for _, row := range rows.Rows { // the latest first
			if row.Action == string(rights.ActionGrant) {
				break
			}
			did[row.Action] = row.Outcome == "done"
		}
		assert.False(t, did["reject"] || did["seen"], "after the grants: %v", did)
		for what, err := range map[string]error{"rejected": rejected, "seen": seen} {
			if err != nil {
				assert.Equal(t, http.StatusForbidden, status(err), "%s: %v", what, err)
			}
		}
		if rejected != nil {
			require.NoError(t, a.Reject(ctx, anna, proposed.Proposal, "again"))
		}
	}
}
