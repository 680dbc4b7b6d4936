package record_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
)

// text returns a policy.
func text(s string) *policies.Policy { return &policies.Policy{Text: s} }

// set is a change of one policy of an app.
func set(app, name string, p *policies.Policy, expect record.Expect) record.Change {
	action := "set"
	if p == nil {
		action = "delete"
	}
	return record.Change{
		App: app, By: audit.Person{ID: "local:anna", Name: "anna"}, Action: action,
		Edits: []record.Edit{{Name: name, Policy: p, Expect: expect}},
	}
}

func must(t testing.TB, r *record.Record, c record.Change) *record.Outcome {
	t.Helper()
	outcome, err := r.Change(t.Context(), c)
	require.NoError(t, err)
	return outcome
}

// Two people change one policy: the second learns of the first.
func TestStaleIsRefused(t *testing.T) { sqltest.Each(t, staleIsRefused) }

func staleIsRefused(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	must(t, r, set("pay", "api", text("100/1m"), record.Expect{Absent: true}))
	outcome := must(t, r, set("pay", "api", text("200/1m"), record.Expect{Revision: 1}))
	assert.Equal(t, policies.Version{Generation: 1, Revision: 2}, outcome.Head.Version)
	assert.Equal(t, int64(2), outcome.Revision)

	_, err := r.Change(t.Context(), set("pay", "api", text("300/1m"), record.Expect{Revision: 1}))
	var stale *record.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, int64(2), stale.Current)
	assert.Contains(t, err.Error(), "changed by anna")
	_, err = r.Change(t.Context(), set("pay", "api", text("300/1m"), record.Expect{Absent: true}))
	require.ErrorAs(t, err, &stale)
	_, err = r.Change(t.Context(), record.Change{
		App: "pay", Action: "apply", Revision: 1,
		Edits: []record.Edit{{Name: "other", Policy: text("1/1m")}},
	})
	require.ErrorAs(t, err, &stale, "the revision of the app")
	assert.Equal(t, "anna", stale.Who)
	lent := set("mail", "queue", &policies.Policy{Text: "1/1m", Apps: []string{"pay"}}, record.Expect{})
	lent.By.Name = "boris"
	must(t, r, lent)
	_, err = r.Change(t.Context(), record.Change{App: "pay", Action: "apply", Revision: 1})
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, "boris", stale.Who, "what an app is lent changes its document")

	// What is deleted has no revision, and is created once more.
	must(t, r, set("pay", "api", nil, record.Expect{Revision: 2}))
	_, err = r.Change(t.Context(), set("pay", "api", text("300/1m"), record.Expect{Revision: 2}))
	require.ErrorAs(t, err, &stale)
	must(t, r, set("pay", "api", text("300/1m"), record.Expect{Absent: true}))
}

// The record publishes of an app what it shows of it, and keeps all that it has ever published.
func TestDocuments(t *testing.T) { sqltest.Each(t, documents) }

func documents(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	p := policies.Policy{
		Text: "100/1m", Tiers: map[string]string{"pro": "unlimited"}, Keys: map[string]string{"user=\x20é": "blocked"},
		Apps: []string{"web", "billpay"},
	}
	must(t, r, set("pay", "api", &p, record.Expect{}))
	for _, app := range []string{"pay", "web", "billpay"} {
		document, encoded, err := r.Document(t.Context(), app)
		require.NoError(t, err)
		want := p
		want.Apps = nil
		assert.Equal(t, &policies.Document{
			App: app, Version: policies.Version{Generation: 1, Revision: 1},
			Policies: map[string]policies.Policy{"api": want},
		}, document)
		head, known, err := r.Head(t.Context(), app)
		require.NoError(t, err)
		assert.True(t, known)
		assert.Equal(t, record.Head{App: app, Version: document.Version, Digest: policies.Digest(encoded)}, head)
		isKnown, err := r.Known(t.Context(), app, head.Version, head.Digest)
		require.NoError(t, err)
		assert.True(t, isKnown)
		isKnown, err = r.Known(t.Context(), app, head.Version, strings.Repeat("0", 64))
		require.NoError(t, err)
		assert.False(t, isKnown)
	}
	var missing *record.NotFoundError
	_, _, err := r.Document(t.Context(), "PAY")
	require.ErrorAs(t, err, &missing, "names compare byte by byte")
	for _, odd := range []string{"", "\x00", "\xff", "a b", "é"} {
		_, _, err := r.Document(t.Context(), odd)
		require.ErrorAs(t, err, &missing, "%q", odd)
		_, _, err = r.Policy(t.Context(), "pay", odd)
		require.ErrorAs(t, err, &missing, "%q", odd)
		_, err = r.History(t.Context(), "pay", odd, 0, 1)
		require.ErrorAs(t, err, &missing, "%q", odd)
		_, known, err := r.Head(t.Context(), odd)
		require.NoError(t, err)
		assert.False(t, known)
	}
	_, _, err = r.Policy(t.Context(), "web", "api")
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, "pay", missing.Owner)

	// An app that is taken out has the code's again, and a later revision.
	p.Apps = []string{"web"}
	must(t, r, set("pay", "api", &p, record.Expect{}))
	document, _, err := r.Document(t.Context(), "billpay")
	require.NoError(t, err)
	assert.Empty(t, document.Policies)
	assert.Equal(t, int64(2), document.Version.Revision)

	// What says the same is no change.
	outcome := must(t, r, set("pay", "api", &p, record.Expect{}))
	assert.Empty(t, outcome.Differences)
	assert.Equal(t, int64(2), outcome.Head.Version.Revision)
}

// For one app a name stands once: of its own or lent, and before that of all apps.
func TestOneNameOncePerApp(t *testing.T) { sqltest.Each(t, oneName) }

func oneName(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	must(t, r, set(policies.AllApps, "api", text("1/1m"), record.Expect{}))
	must(t, r, set("pay", "api", &policies.Policy{Text: "2/1m", Apps: []string{"web"}}, record.Expect{}))
	must(t, r, record.Change{App: "mail", Action: "add"})
	of := func(app string) string {
		document, _, err := r.Document(t.Context(), app)
		require.NoError(t, err)
		return document.Policies["api"].Text
	}
	assert.Equal(t, []string{"2/1m", "2/1m", "1/1m"}, []string{of("pay"), of("web"), of("mail")})

	var taken *record.TakenError
	_, err := r.Change(t.Context(), set("web", "api", text("3/1m"), record.Expect{}))
	require.ErrorAs(t, err, &taken)
	assert.Equal(t, "pay", taken.Owner)
	must(t, r, set("mail", "api", text("4/1m"), record.Expect{}))
	_, err = r.Change(t.Context(), set("pay", "api", &policies.Policy{Text: "2/1m", Apps: []string{"mail", "web"}}, record.Expect{}))
	require.ErrorAs(t, err, &taken)
	assert.Equal(t, "mail", taken.Owner)

	// A change for all apps is a new document for each, also for those that do not need it.
	must(t, r, set(policies.AllApps, "api", text("5/1m"), record.Expect{}))
	must(t, r, set("mail", "api", nil, record.Expect{}))
	assert.Equal(t, []string{"2/1m", "2/1m", "5/1m"}, []string{of("pay"), of("web"), of("mail")})
	heads, err := r.Heads(t.Context())
	require.NoError(t, err)
	assert.Len(t, heads, 3)
	must(t, r, set(policies.AllApps, "api", nil, record.Expect{}))
	assert.Empty(t, of("mail"))
}

// Whatever has a mistake, or is too much, is refused as a whole.
func TestRefused(t *testing.T) { sqltest.Each(t, refused) }

func refused(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	must(t, r, set("pay", "api", text("100/1m; epoch 2"), record.Expect{}))
	big := policies.Policy{Text: "1/1m", Keys: map[string]string{}}
	for i := range 900 {
		big.Keys[fmt.Sprintf("user=%0400d", i)] = "blocked"
	}
	tests := map[string]struct {
		change record.Change
		says   string
	}{
		"text":       {set("pay", "b", text("100/1x"), record.Expect{}), "1x"},
		"name":       {set("pay", "a b", text("100/1m"), record.Expect{}), "a b"},
		"app":        {set("a/b", "b", text("100/1m"), record.Expect{}), "a/b"},
		"its apps":   {set("pay", "b", &policies.Policy{Text: "1/1m", Apps: []string{"pay"}}, record.Expect{}), "owner"},
		"of all":     {set("*", "b", &policies.Policy{Text: "1/1m", Apps: []string{"pay"}}, record.Expect{}), "owner"},
		"tier":       {set("pay", "b", &policies.Policy{Tiers: map[string]string{"pro": "x"}}, record.Expect{}), "pro"},
		"blocked":    {set("pay", "b", &policies.Policy{Tiers: map[string]string{"pro": "blocked"}}, record.Expect{}), "pro"},
		"too large":  {set("pay", "b", &big, record.Expect{}), "bytes"},
		"a line":     {record.Change{App: "pay", Reason: "a\nb"}, "one line"},
		"no text":    {record.Change{App: "pay", Reason: "\xff"}, "one line"},
		"deletes":    {set("pay", "a\x00b", nil, record.Expect{}), "name"},
		"reason":     {record.Change{App: "pay", Reason: strings.Repeat("x", 2000)}, "reason"},
		"epoch back": {set("pay", "api", text("100/1m; epoch 1"), record.Expect{}), "epoch 3"},
		"no epoch":   {set("pay", "api", text("100/1m"), record.Expect{}), "epoch 3"},
		"one of two": {record.Change{App: "pay", Action: "apply", Edits: []record.Edit{
			{Name: "good", Policy: text("5/1m")}, {Name: "bad", Policy: text("5/1")},
		}}, "bad"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := r.Change(t.Context(), test.change)
			var invalid *record.InvalidError
			require.ErrorAs(t, err, &invalid)
			assert.ErrorContains(t, err, test.says)
		})
	}
	owned, err := r.Owned(t.Context(), "pay")
	require.NoError(t, err)
	assert.Equal(t, map[string]policies.Policy{"api": {Text: "100/1m; epoch 2"}}, owned)
	c := set("pay", "api", text("100/1m; epoch 1"), record.Expect{})
	c.Force = true
	must(t, r, c)
}

// Other algorithms than before, or than services have, are refused with those that could not use them.
func TestOtherForms(t *testing.T) { sqltest.Each(t, otherForms) }

func otherForms(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	must(t, r, set("pay", "api", &policies.Policy{Text: "100/1m", Apps: []string{"web"}}, record.Expect{}))
	var form *record.FormError
	c := set("pay", "api", &policies.Policy{Text: "100/1m sliding-window", Apps: []string{"web"}}, record.Expect{})
	_, err := r.Change(t.Context(), c)
	require.ErrorAs(t, err, &form)
	assert.Equal(t, "", form.CannotUse[0].Process)
	c.Force = true
	assert.Len(t, must(t, r, c).CannotUse, 1)

	c = set("pay", "api", &policies.Policy{Text: "50/1m sliding-window", Apps: []string{"web"}}, record.Expect{})
	c.Announced = []record.Announced{
		{App: "pay", Process: "pay-1", Policy: "api", Code: "api: 10/1m sliding-window"},
		{App: "web", Process: "web-1", Policy: "api", Code: "api: 10/1m"},
		{App: "web", Process: "web-1", Policy: "api", Code: "api: 10/1m"},          // another rule of the same policy
		{App: "web", Process: "web-1", Policy: "other", Code: "other: 10/1m"},      // another policy
		{App: "elsewhere", Process: "elsewhere", Policy: "api", Code: "10/1m"},     // does not use it
		{App: "web", Process: "liar", Policy: "api", Code: "give me no limit, ok"}, // no text at all
	}
	_, err = r.Change(t.Context(), c)
	require.ErrorAs(t, err, &form)
	require.Len(t, form.CannotUse, 1)
	assert.Equal(t, "web-1", form.CannotUse[0].Process)

	// A wait where the code has none, and a tier of another form.
	c = set("pay", "login", &policies.Policy{Text: "5/1m; wait 2s"}, record.Expect{})
	c.Announced = []record.Announced{{App: "pay", Process: "pay-1", Policy: "login", Code: "login: 10/1m"}}
	_, err = r.Change(t.Context(), c)
	require.ErrorAs(t, err, &form)
	c.Edits[0].Policy = &policies.Policy{Tiers: map[string]string{"pro": "5/1m fixed-window", "free": "unlimited"}}
	_, err = r.Change(t.Context(), c)
	require.ErrorAs(t, err, &form)
	assert.Equal(t, "tier pro", form.CannotUse[0].Entry)
}

// What thousands of processes announce, or one that announces anything, keeps no change waiting.
func TestManyAnnouncements(t *testing.T) {
	r := recordtest.Open(t, sqltest.New(t))
	large := &policies.Policy{Tiers: map[string]string{}, Keys: map[string]string{}}
	for i := range 1000 {
		large.Tiers[fmt.Sprint("tier", i)] = fmt.Sprintf("%d/1m", i+1)
		large.Keys[fmt.Sprint("user=", i)] = fmt.Sprintf("%d/1m", i+1)
	}
	c := set("pay", "api", large, record.Expect{})
	for i := range 10_000 {
		process := fmt.Sprint("pay-", i)
		c.Announced = append(c.Announced,
			record.Announced{App: "pay", Process: process, Policy: "api", Code: "10/1m"},
			record.Announced{App: "pay", Process: process, Policy: "api", Code: fmt.Sprintf("%d/1m", i+1)})
	}
	c.Announced = append(c.Announced, record.Announced{App: "pay", Process: "late", Policy: "api", Code: "10/1m sliding-window"})
	began := time.Now()
	must(t, r, c)
	assert.Less(t, time.Since(began), 20*time.Second) // each text for itself would take minutes
}

// An app of many rules that cannot use a change hides none of another one.
func TestEachAppIsListed(t *testing.T) {
	r := recordtest.Open(t, sqltest.New(t))
	c := set("pay", "api", &policies.Policy{Text: "1/1m", Apps: []string{"web"}}, record.Expect{})
	for i := range 1000 {
		c.Announced = append(c.Announced,
			record.Announced{App: "pay", Process: fmt.Sprint("pay-", i), Policy: "api", Code: "10/1m sliding-window"})
	}
	c.Announced = append(c.Announced, record.Announced{App: "web", Process: "web-1", Policy: "api", Code: "10/1m fixed-window"})
	_, err := r.Change(t.Context(), c)
	var form *record.FormError
	require.ErrorAs(t, err, &form)
	require.NotEmpty(t, form.CannotUse)
	assert.Equal(t, "web-1", form.CannotUse[len(form.CannotUse)-1].Process)
}

// A change that begins counting anew says so.
func TestAfresh(t *testing.T) {
	r := recordtest.Open(t, sqltest.New(t))
	must(t, r, set("pay", "api", text("100/1m"), record.Expect{}))
	for _, step := range []struct {
		text   string
		afresh bool
	}{{"200/1m", false}, {"200/1h", true}, {"200/1h; shadow", false}, {"200/1h; epoch 1", true}, {"300/1h; epoch 1", false}} {
		outcome := must(t, r, set("pay", "api", text(step.text), record.Expect{}))
		assert.Equal(t, step.afresh, outcome.Differences[0].Afresh, step.text)
	}
}

// The history has every version, who wrote it and why, and each can be had again.
func TestHistory(t *testing.T) { sqltest.Each(t, history) }

func history(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	for i, s := range []string{"1/1m", "2/1m", "", "3/1m"} {
		p := text(s)
		if s == "" {
			p = nil
		}
		c := set("pay", "api", p, record.Expect{})
		c.Reason = fmt.Sprint("reason ", i)
		must(t, r, c)
		must(t, r, set("pay", "other", text(fmt.Sprint(i+1, "/1m")), record.Expect{}))
	}
	all, err := r.History(t.Context(), "pay", "api", 0, 100)
	require.NoError(t, err)
	require.Len(t, all, 4)
	assert.Equal(t, []int64{7, 5, 3, 1}, []int64{all[0].Revision, all[1].Revision, all[2].Revision, all[3].Revision})
	assert.Nil(t, all[1].Policy)
	assert.Equal(t, "2/1m", all[2].Policy.Text)
	assert.Equal(t, []string{"anna", "reason 2", "delete"}, []string{all[1].By.Name, all[1].Reason, all[1].Action})
	page, err := r.History(t.Context(), "pay", "api", 5, 1)
	require.NoError(t, err)
	require.Len(t, page, 1)
	assert.Equal(t, int64(3), page[0].Revision)

	p, err := r.Version(t.Context(), "pay", "api", 1)
	require.NoError(t, err)
	assert.Equal(t, "1/1m", p.Text)
	var missing *record.NotFoundError
	_, err = r.Version(t.Context(), "pay", "api", 2)
	require.ErrorAs(t, err, &missing)
}

// A generation is later than all revisions of those before.
func TestGenerations(t *testing.T) { sqltest.Each(t, generations) }

func generations(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	must(t, r, set("pay", "api", text("1/1m"), record.Expect{}))
	outcome := must(t, r, record.Change{App: "pay", Action: "adopt", Generation: 4})
	assert.Equal(t, policies.Version{Generation: 5, Revision: 2}, outcome.Head.Version)
	outcome = must(t, r, set("pay", "api", text("2/1m"), record.Expect{}))
	assert.Equal(t, policies.Version{Generation: 5, Revision: 3}, outcome.Head.Version)
}

// A dry change says what it would do.
func TestDry(t *testing.T) {
	r := recordtest.Open(t, sqltest.New(t))
	c := set("pay", "api", text("1/1m"), record.Expect{})
	c.Dry = true
	outcome := must(t, r, c)
	assert.Len(t, outcome.Differences, 1)
	heads, err := r.Heads(t.Context())
	require.NoError(t, err)
	assert.Empty(t, heads)
}

// Eight at once: no revision is lost or given twice, and the history leads to what holds.
func TestWritersAtOnce(t *testing.T) { sqltest.Each(t, writersAtOnce) }

func writersAtOnce(t *testing.T, location string) {
	const writers, each = 8, 12
	records := []*record.Record{recordtest.Open(t, location), recordtest.Open(t, location)} // two admins
	var mu sync.Mutex
	last, revisions := map[string]string{}, map[int64]bool{}
	var work sync.WaitGroup
	for i := range writers {
		work.Go(func() {
			r := records[i%2]
			for n := range each {
				name := fmt.Sprint("p", n%3)
				said := fmt.Sprintf("%d/1m", 1+i*each+n)
				_, revision, err := r.Policy(t.Context(), "pay", name)
				if err != nil && !errors.As(err, new(*record.NotFoundError)) {
					t.Error(err)
					return
				}
				outcome, err := r.Change(t.Context(), set("pay", name, text(said), record.Expect{Revision: revision, Absent: revision == 0}))
				if errors.As(err, new(*record.StaleError)) {
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				assert.False(t, revisions[outcome.Revision], "revision %d was given twice", outcome.Revision)
				revisions[outcome.Revision] = true
				last[fmt.Sprintf("%s %020d", name, outcome.Revision)] = said
				mu.Unlock()
			}
		})
	}
	work.Wait()
	assert.NotEmpty(t, revisions)
	for n := range int64(len(revisions)) {
		assert.True(t, revisions[n+1], "revision %d is missing", n+1)
	}
	document, _, err := records[0].Document(t.Context(), "pay")
	require.NoError(t, err)
	for name := range document.Policies {
		all, err := records[1].History(t.Context(), "pay", name, 0, 1000)
		require.NoError(t, err)
		assert.Equal(t, *all[0].Policy, document.Policies[name])
		var said []string
		for _, key := range slices.Backward(slices.Sorted(maps.Keys(last))) {
			if strings.HasPrefix(key, name+" ") {
				said = append(said, last[key])
			}
		}
		require.Len(t, all, len(said))
		for i := range said {
			assert.Equal(t, said[i], all[i].Policy.Text)
		}
	}
}

// Any order of changes leaves what a map would have.
func TestAnyChanges(t *testing.T) { sqltest.Each(t, anyChanges) }

func anyChanges(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	apps := []string{"a", "b", "c", policies.AllApps}
	names := []string{"x", "y"}
	type key struct{ app, name string }
	holds := map[key]policies.Policy{}
	known := map[string]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		app := rapid.SampledFrom(apps).Draw(rt, "app")
		name := rapid.SampledFrom(names).Draw(rt, "name")
		var p *policies.Policy
		if rapid.Bool().Draw(rt, "there") {
			p = text(fmt.Sprintf("%d/1m", rapid.IntRange(1, 3).Draw(rt, "n")))
			if app != policies.AllApps {
				for _, other := range apps[:3] {
					if other != app && rapid.Bool().Draw(rt, "lent") {
						p.Apps = append(p.Apps, other)
					}
				}
			}
		}
		_, err := r.Change(context.Background(), set(app, name, p, record.Expect{}))
		taken := false
		if p != nil {
			for owner, held := range holds {
				if owner.name != name || owner.app == app || owner.app == policies.AllApps {
					continue
				}
				for _, user := range append([]string{app}, p.Apps...) {
					taken = taken || user == owner.app || slices.Contains(held.Apps, user)
				}
			}
		}
		if taken {
			if !errors.As(err, new(*record.TakenError)) {
				rt.Fatalf("an app would have two policies %q: %v", name, err)
			}
			return
		}
		if err != nil {
			rt.Fatal(err)
		}
		if p == nil {
			delete(holds, key{app, name})
		} else {
			holds[key{app, name}] = *p
			known[app] = true
			for _, user := range p.Apps {
				known[user] = true
			}
		}
		for user := range known {
			if user == policies.AllApps {
				continue
			}
			want := map[string]string{}
			for owner, held := range holds {
				if owner.app == policies.AllApps && want[owner.name] == "" {
					want[owner.name] = held.Text
				}
			}
			for owner, held := range holds {
				if owner.app == user || slices.Contains(held.Apps, user) {
					want[owner.name] = held.Text
				}
			}
			document, encoded, err := r.Document(context.Background(), user)
			if err != nil {
				rt.Fatal(err)
			}
			got := map[string]string{}
			for name, p := range document.Policies {
				got[name] = p.Text
			}
			if !maps.Equal(want, got) {
				rt.Fatalf("app %s has %v, want %v", user, got, want)
			}
			head, _, err := r.Head(context.Background(), user)
			if err != nil || head.Digest != policies.Digest(encoded) {
				rt.Fatalf("app %s: the digest of the head is not that of the document: %v", user, err)
			}
		}
	})
}
