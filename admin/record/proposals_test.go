package record_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
)

var (
	anna = audit.Person{ID: "local:anna", Name: "anna"}
	ben  = audit.Person{ID: "local:ben", Name: "ben"}
)

// settings is a change of the settings of an app.
func settings(s record.Settings, expect record.Expect) record.Change {
	return record.Change{
		App: "pay", By: anna, Action: "settings", Reason: "because", Settings: &record.SettingsEdit{Settings: s, Expect: expect},
	}
}

func approval(id int64, by audit.Person) record.Approval {
	return record.Approval{
		ID: id, By: by, Reason: "it is fine",
		Permit: func(context.Context, sqldb.Tx, *record.Proposal, []string) error { return nil },
	}
}

// An app of four eyes takes no change of one person, unless it is an emergency or ends by itself.
func TestFourEyes(t *testing.T) { sqltest.Each(t, fourEyes) }

func fourEyes(t *testing.T, location string) {
	c := newClock()
	r := recordtest.OpenAt(t, location, c.now)
	must(t, r, settings(record.Settings{Title: "Payments", FourEyes: true}, record.Expect{Absent: true}))
	change := set("pay", "api", &policies.Policy{Text: "100/1m", Keys: map[string]string{"user=1": "5/1m"}}, record.Expect{})
	var review *record.ReviewError
	_, err := r.Change(t.Context(), change)
	require.ErrorAs(t, err, &review)
	assert.Equal(t, []string{"pay"}, review.Apps)

	// A policy of another app that names it is no way around.
	around := set("shop", "lent", &policies.Policy{Text: "1/1m", Apps: []string{"pay"}}, record.Expect{})
	_, err = r.Change(t.Context(), around)
	require.ErrorAs(t, err, &review)
	_, err = r.Change(t.Context(), settings(record.Settings{Title: "Payments"}, record.Expect{}))
	require.ErrorAs(t, err, &review)
	must(t, r, settings(record.Settings{Title: "All payments", FourEyes: true}, record.Expect{}))

	p, outcome, err := r.Propose(t.Context(), change, nil)
	require.NoError(t, err)
	require.Len(t, outcome.Differences, 1)
	assert.Equal(t, []string{"pay"}, p.Apps)
	assert.Nil(t, holds(t, r, "pay", "api"))
	open, err := r.Proposals(t.Context(), record.WhichProposals{App: "pay", State: record.Open})
	require.NoError(t, err)
	require.Len(t, open, 1)
	assert.Equal(t, *p, open[0])
	assert.Equal(t, "100/1m", open[0].Edits[0].Difference().After.Text)

	var decided *record.DecidedError
	_, _, err = r.Approve(t.Context(), approval(p.ID, anna))
	require.ErrorAs(t, err, &decided)
	assert.True(t, decided.Author)
	_, _, err = r.Approve(t.Context(), approval(p.ID, ben))
	require.NoError(t, err)
	assert.Equal(t, "100/1m", holds(t, r, "pay", "api").Text)
	_, _, err = r.Approve(t.Context(), approval(p.ID, ben))
	require.ErrorAs(t, err, &decided)
	past, err := r.History(t.Context(), "pay", "api", 0, 1)
	require.NoError(t, err)
	assert.Equal(t, anna, past[0].By)

	emergency := set("pay", "api", text("1/1m"), record.Expect{})
	emergency.Emergency = true
	must(t, r, emergency)
	must(t, r, ofKey("pay", "api", "user=7", "blocked", c.now().Add(time.Hour)))
	_, err = r.Change(t.Context(), ofKey("pay", "api", "user=8", "blocked", time.Time{}))
	require.ErrorAs(t, err, &review)
}

// An operator who helps a caller meanwhile does not end a proposal, but somebody who changes what it changes does.
func TestProposalsBase(t *testing.T) { sqltest.Each(t, proposalsBase) }

func proposalsBase(t *testing.T, location string) {
	c := newClock()
	r := recordtest.OpenAt(t, location, c.now)
	must(t, r, set("pay", "api", &policies.Policy{Text: "100/1m", Keys: map[string]string{"user=1": "5/1m"}}, record.Expect{}))
	must(t, r, settings(record.Settings{FourEyes: true}, record.Expect{}))
	propose := func(p *policies.Policy) *record.Proposal {
		proposal, _, err := r.Propose(t.Context(), set("pay", "api", p, record.Expect{}), nil)
		require.NoError(t, err)
		return proposal
	}
	of := &policies.Policy{Text: "200/1m", Keys: map[string]string{"user=1": "5/1m"}}
	first, second, third, fourth := propose(of), propose(of), propose(of), propose(of)
	hour := c.now().Add(time.Hour)
	must(t, r, ofKey("pay", "api", "user=7", "blocked", hour))
	must(t, r, ofText("pay", "api", "50/1m", hour))
	_, _, err := r.Approve(t.Context(), approval(first.ID, ben))
	require.NoError(t, err)
	assert.Equal(t, policies.Policy{Text: "200/1m", Keys: map[string]string{"user=1": "5/1m", "user=7": "blocked"}},
		*holds(t, r, "pay", "api"))
	c.sleep(2 * time.Hour)
	_, err = r.EndDue(t.Context())
	require.NoError(t, err)
	assert.Equal(t, *of, *holds(t, r, "pay", "api"))

	var stale *record.StaleError
	_, _, err = r.Approve(t.Context(), approval(second.ID, ben))
	require.ErrorAs(t, err, &stale)
	ended, err := r.Proposal(t.Context(), second.ID)
	require.NoError(t, err)
	assert.Equal(t, record.Ended, ended.State)
	assert.Contains(t, ended.Why, "stale")

	lapsed := approval(third.ID, ben)
	lapsed.Permit = func(context.Context, sqldb.Tx, *record.Proposal, []string) error {
		return &record.LapsedError{Name: "anna"}
	}
	_, _, err = r.Approve(t.Context(), lapsed)
	require.ErrorAs(t, err, new(*record.LapsedError))
	ended, err = r.Proposal(t.Context(), third.ID)
	require.NoError(t, err)
	assert.Equal(t, record.Ended, ended.State)
	no := errors.New("no")
	refused := approval(fourth.ID, ben)
	refused.Permit = func(context.Context, sqldb.Tx, *record.Proposal, []string) error { return no }
	_, _, err = r.Approve(t.Context(), refused)
	require.ErrorIs(t, err, no)
	open, err := r.Proposals(t.Context(), record.WhichProposals{State: record.Open})
	require.NoError(t, err)
	assert.Len(t, open, 1, "it waits for somebody who may")

	c.sleep(record.ProposalTerm)
	var decided *record.DecidedError
	_, _, err = r.Approve(t.Context(), approval(fourth.ID, ben))
	require.ErrorAs(t, err, &decided)
	assert.Equal(t, "ended", decided.State)
	open, err = r.Proposals(t.Context(), record.WhichProposals{State: record.Open})
	require.NoError(t, err)
	assert.Empty(t, open)
}

// Several people approve one proposal at once: it is made once. A rejected one is not made.
func TestApproveAtOnce(t *testing.T) { sqltest.Each(t, approveAtOnce) }

func approveAtOnce(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	must(t, r, settings(record.Settings{FourEyes: true}, record.Expect{}))
	p, _, err := r.Propose(t.Context(), set("pay", "api", text("1/1m"), record.Expect{}), nil)
	require.NoError(t, err)
	var made atomic.Int64
	var work sync.WaitGroup
	for i := range 5 {
		work.Go(func() {
			_, _, err := r.Approve(t.Context(), approval(p.ID, audit.Person{ID: fmt.Sprint("local:", i)}))
			if err == nil {
				made.Add(1)
				return
			}
			assert.ErrorAs(t, err, new(*record.DecidedError))
		})
	}
	work.Wait()
	assert.Equal(t, int64(1), made.Load())
	past, err := r.History(t.Context(), "pay", "api", 0, 10)
	require.NoError(t, err)
	assert.Len(t, past, 1)

	p, _, err = r.Propose(t.Context(), set("pay", "api", nil, record.Expect{}), nil)
	require.NoError(t, err)
	for _, reason := range []string{"\xff", "two\nlines", "nothing\x00", strings.Repeat("long", 300)} { // as headers may have them
		wrong := approval(p.ID, ben)
		wrong.Reason = reason
		require.ErrorAs(t, r.Reject(t.Context(), wrong), new(*record.InvalidError), "%q", reason)
		_, _, err = r.Approve(t.Context(), wrong)
		require.ErrorAs(t, err, new(*record.InvalidError), "%q", reason)
	}
	require.NoError(t, r.Reject(t.Context(), approval(p.ID, anna)))
	_, _, err = r.Approve(t.Context(), approval(p.ID, ben))
	require.ErrorAs(t, err, new(*record.DecidedError))
	assert.NotNil(t, holds(t, r, "pay", "api"))
	p, _, err = r.Propose(t.Context(), set("pay", "api", nil, record.Expect{}), nil)
	require.NoError(t, err)
	_, _, err = r.Approve(t.Context(), approval(p.ID, ben))
	require.NoError(t, err)
	assert.Nil(t, holds(t, r, "pay", "api"))
	p, _, err = r.Propose(t.Context(), set("pay", "api", nil, record.Expect{}), nil)
	require.NoError(t, err)
	assert.Nil(t, p, "it holds already")
}

// The policies of an app that is kept by files change by these, by emergencies and for a time.
func TestKeptByFiles(t *testing.T) {
	c := newClock()
	r := recordtest.OpenAt(t, sqltest.New(t), c.now)
	must(t, r, set("pay", "api", text("100/1m"), record.Expect{}))
	must(t, r, settings(record.Settings{KeptBy: "git.example/limits", FourEyes: true}, record.Expect{}))
	var kept *record.KeptError
	for _, change := range []record.Change{
		set("pay", "api", text("1/1m"), record.Expect{}), set("pay", "api", nil, record.Expect{}),
		ofKey("pay", "api", "user=7", "blocked", time.Time{}),
	} {
		change.Reviewed = true
		_, err := r.Change(t.Context(), change)
		require.ErrorAs(t, err, &kept)
		assert.Contains(t, kept.Error(), "git.example/limits")
	}
	must(t, r, ofKey("pay", "api", "user=7", "blocked", c.now().Add(time.Hour)))
	files := set("pay", "api", text("200/1m"), record.Expect{})
	files.FromFiles, files.Beneath, files.Action = true, true, "apply"
	_, err := r.Change(t.Context(), files)
	require.ErrorAs(t, err, new(*record.ReviewError))
	files.Reviewed = true
	must(t, r, files)
	emergency := set("pay", "api", text("1/1m"), record.Expect{})
	emergency.Emergency = true
	must(t, r, emergency)
	_, err = r.Change(t.Context(), settings(record.Settings{FourEyes: true}, record.Expect{}))
	require.ErrorAs(t, err, new(*record.ReviewError), "a second person may end it")
	leave := settings(record.Settings{}, record.Expect{})
	leave.Reviewed = true
	must(t, r, leave)
	must(t, r, set("pay", "api", text("2/1m"), record.Expect{}))
}

// An app is deleted with its policies, and comes back with its history.
func TestDeleteApp(t *testing.T) { sqltest.Each(t, deleteApp) }

func deleteApp(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	outcome := must(t, r, settings(record.Settings{Title: "Payments", Counts: []string{"b", "a", "a"}}, record.Expect{Absent: true}))
	_, err := r.Change(t.Context(), settings(record.Settings{}, record.Expect{Absent: true}))
	require.ErrorAs(t, err, new(*record.StaleError))
	_, err = r.Change(t.Context(), settings(record.Settings{}, record.Expect{Revision: 77}))
	require.ErrorAs(t, err, new(*record.StaleError))
	state, err := r.State(t.Context(), "pay")
	require.NoError(t, err)
	assert.Equal(t, record.State{Settings: record.Settings{Title: "Payments", Counts: []string{"a", "b"}}, Revision: outcome.Settings}, state)

	must(t, r, set("pay", "api", &policies.Policy{Text: "1/1m", Apps: []string{"shop"}}, record.Expect{}))
	must(t, r, set("shop", "lent", &policies.Policy{Text: "1/1m", Apps: []string{"pay"}}, record.Expect{}))
	remove := record.Change{App: "pay", By: anna, Action: "delete-app", Delete: true, Expect: record.Expect{Revision: state.Revision}}
	_, err = r.Change(t.Context(), remove)
	require.ErrorAs(t, err, new(*record.TakenError), "another app lends it a policy")
	must(t, r, set("shop", "lent", nil, record.Expect{}))
	outcome = must(t, r, remove)
	assert.Len(t, outcome.Differences, 1)
	_, err = r.State(t.Context(), "pay")
	require.ErrorAs(t, err, new(*record.NotFoundError))
	apps, err := r.Apps(t.Context())
	require.NoError(t, err)
	require.Len(t, apps, 1)
	assert.Equal(t, "shop", apps[0].App)
	document, _, err := r.Document(t.Context(), "pay")
	require.NoError(t, err)
	assert.Empty(t, document.Policies, "an empty document is published")
	document, _, err = r.Document(t.Context(), "shop")
	require.NoError(t, err)
	assert.Empty(t, document.Policies)
	_, err = r.Change(t.Context(), set("pay", "api", text("1/1m"), record.Expect{}))
	require.ErrorAs(t, err, new(*record.NotFoundError))
	must(t, r, settings(record.Settings{Title: "Again"}, record.Expect{Absent: true}))
	past, err := r.History(t.Context(), "pay", "api", 0, 10)
	require.NoError(t, err)
	assert.Len(t, past, 2)
	_, err = r.Change(t.Context(), record.Change{App: "none", Action: "delete-app", Delete: true})
	require.ErrorAs(t, err, new(*record.NotFoundError))
}

// An app goes back to what it was at any revision, also to policies that were deleted, and to none.
func TestBack(t *testing.T) { sqltest.Each(t, back) }

func back(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	must(t, r, set("pay", "a", text("1/1m"), record.Expect{}))          // 1
	must(t, r, set("other", "x", text("1/1m"), record.Expect{}))        // 2
	must(t, r, set("pay", "b", text("1/1m; epoch 1"), record.Expect{})) // 3
	must(t, r, set("pay", "a", nil, record.Expect{}))                   // 4
	must(t, r, set("pay", "b", text("1/1m; epoch 2"), record.Expect{})) // 5
	must(t, r, set("pay", "c", text("1/1m"), record.Expect{}))          // 6
	states := map[int64]map[string]policies.Policy{
		1: {"a": {Text: "1/1m"}},
		2: {"a": {Text: "1/1m"}},
		3: {"a": {Text: "1/1m"}, "b": {Text: "1/1m; epoch 1"}},
		4: {"b": {Text: "1/1m; epoch 1"}},
		5: {"b": {Text: "1/1m; epoch 2"}},
		6: {"b": {Text: "1/1m; epoch 2"}, "c": {Text: "1/1m"}},
	}
	for _, to := range []int64{1, 6, 3, 4, 2, 5} {
		edits, err := r.Back(t.Context(), "pay", to)
		require.NoError(t, err)
		must(t, r, record.Change{App: "pay", By: anna, Action: "rollback", Back: true, Edits: edits})
		all, err := r.Owned(t.Context(), "pay")
		require.NoError(t, err)
		assert.Equal(t, states[to], all, "revision %d", to)
	}
	_, err := r.Back(t.Context(), "pay", 1000)
	require.ErrorAs(t, err, new(*record.NotFoundError))
	_, err = r.Back(t.Context(), "other", 1)
	require.ErrorAs(t, err, new(*record.NotFoundError))
}
