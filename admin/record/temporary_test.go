package record_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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

// clock is a time that a test sets.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.at.Store(time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) now() time.Time        { return time.UnixMicro(c.at.Load()).UTC() }
func (c *clock) sleep(d time.Duration) { c.at.Add(d.Microseconds()) }

// ofKey is a change of the numbers of one key.
func ofKey(app, name, key, numbers string, until time.Time) record.Change {
	c := set(app, name, nil, record.Expect{})
	c.Action, c.Key = "key", key
	c.Edits[0].Patch, c.Edits[0].Until = &record.Patch{Keys: map[string]string{key: numbers}}, until
	return c
}

func ofText(app, name, text string, until time.Time) record.Change {
	c := set(app, name, nil, record.Expect{})
	c.Action = "temporary"
	c.Edits[0].Patch, c.Edits[0].Until = &record.Patch{Text: &text}, until
	return c
}

// endOf ends what is temporary of one key.
func endOf(app, name, key string) record.Change {
	c := set(app, name, nil, record.Expect{})
	c.Action, c.Key = "end", key
	c.Edits[0].End = []string{key}
	return c
}

func holds(t testing.TB, r *record.Record, app, name string) *policies.Policy {
	t.Helper()
	all, err := r.Owned(t.Context(), app)
	require.NoError(t, err)
	p, found := all[name]
	if !found {
		return nil
	}
	return &p
}

// Two customers are blocked for a time each, and the policy is edited meanwhile: each block ends at its time.
func TestTemporaryChangesEndApart(t *testing.T) { sqltest.Each(t, temporaryChangesEndApart) }

func temporaryChangesEndApart(t *testing.T, location string) {
	c := newClock()
	r := recordtest.OpenAt(t, location, c.now)
	must(t, r, set("pay", "api", &policies.Policy{Text: "100/1m", Keys: map[string]string{"user=7": "5/1m"}}, record.Expect{}))
	in := func(d time.Duration) time.Time { return c.now().Add(d) }
	must(t, r, ofKey("pay", "api", "user=7", "blocked", in(time.Hour)))
	must(t, r, ofKey("pay", "api", "user=8", "blocked", in(2*time.Hour)))
	must(t, r, ofText("pay", "api", "100/1m; shadow", in(3*time.Hour)))
	edited := holds(t, r, "pay", "api")
	edited.Tiers = map[string]string{"pro": "500/1m"}
	outcome := must(t, r, set("pay", "api", edited, record.Expect{}))
	assert.Empty(t, outcome.Ended)

	all, err := r.Temporaries(t.Context(), "pay")
	require.NoError(t, err)
	require.Len(t, all, 3)
	assert.Equal(t, []string{"user=7", "user=8", ""}, []string{all[0].Key, all[1].Key, all[2].Key})
	assert.Equal(t, "5/1m", all[0].Former)

	wait := func(want policies.Policy) {
		t.Helper()
		_, err := r.EndDue(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, *holds(t, r, "pay", "api"))
		c.sleep(time.Hour)
	}
	tiers := edited.Tiers
	both := map[string]string{"user=7": "blocked", "user=8": "blocked"}
	wait(policies.Policy{Text: "100/1m; shadow", Tiers: tiers, Keys: both})
	wait(policies.Policy{Text: "100/1m; shadow", Tiers: tiers, Keys: map[string]string{"user=7": "5/1m", "user=8": "blocked"}})
	wait(policies.Policy{Text: "100/1m; shadow", Tiers: tiers, Keys: map[string]string{"user=7": "5/1m"}})
	wait(policies.Policy{Text: "100/1m", Tiers: tiers, Keys: map[string]string{"user=7": "5/1m"}})
	past, err := r.History(t.Context(), "pay", "api", 0, 10)
	require.NoError(t, err)
	assert.Equal(t, []string{"end", "end", "end", "set", "temporary", "key", "key", "set"}, actions(past))
	assert.Equal(t, "weir-admin", past[0].By.Name)
}

func actions(past []record.Past) (all []string) {
	for _, p := range past {
		all = append(all, p.Action)
	}
	return all
}

// What is temporary on a policy that the record does not have leaves nothing behind.
func TestTemporaryEndsInNothing(t *testing.T) { sqltest.Each(t, temporaryEndsInNothing) }

func temporaryEndsInNothing(t *testing.T, location string) {
	c := newClock()
	r := recordtest.OpenAt(t, location, c.now)
	must(t, r, ofText("pay", "api", "100/1m; shadow", c.now().Add(time.Hour)))
	c.sleep(time.Hour)
	ended, err := r.EndDue(t.Context())
	require.NoError(t, err)
	assert.Len(t, ended, 1)
	assert.Nil(t, holds(t, r, "pay", "api"))
	ended, err = r.EndDue(t.Context())
	require.NoError(t, err)
	assert.Empty(t, ended)
}

// An edit of a part that is temporary ends that, and says so; a file is applied beneath it.
func TestWritesMeetTemporaryChanges(t *testing.T) { sqltest.Each(t, writesMeetTemporaryChanges) }

func writesMeetTemporaryChanges(t *testing.T, location string) {
	c := newClock()
	r := recordtest.OpenAt(t, location, c.now)
	must(t, r, set("pay", "api", text("100/1m"), record.Expect{}))
	hour := c.now().Add(time.Hour)
	must(t, r, ofKey("pay", "api", "user=7", "blocked", hour))
	must(t, r, ofText("pay", "api", "10/1m", hour))

	file := record.Change{
		App: "pay", By: audit.Person{ID: "local:ci"}, Action: "apply", Beneath: true,
		Edits: []record.Edit{{Name: "api", Policy: text("200/1m")}},
	}
	dry := file
	dry.Dry = true
	outcome := must(t, r, dry)
	require.Len(t, outcome.Differences, 1)
	assert.Equal(t, "100/1m", outcome.Differences[0].Before.Text, "what is beneath")
	outcome = must(t, r, file)
	require.Len(t, outcome.Beneath, 1)
	assert.Equal(t, "200/1m", outcome.Beneath[0].Former)
	assert.Empty(t, outcome.Ended)
	assert.Equal(t, "10/1m", holds(t, r, "pay", "api").Text)
	outcome = must(t, r, dry)
	assert.Empty(t, outcome.Differences, "it says what the file says, beneath")

	outcome = must(t, r, set("pay", "api", &policies.Policy{Text: "10/1m"}, record.Expect{}))
	require.Len(t, outcome.Ended, 1, "the block was taken away, and the text is as it was")
	assert.Equal(t, "user=7", outcome.Ended[0].Key)
	c.sleep(2 * time.Hour)
	_, err := r.EndDue(t.Context())
	require.NoError(t, err)
	assert.Equal(t, policies.Policy{Text: "200/1m"}, *holds(t, r, "pay", "api"))

	// Ended early, and written for good by naming it.
	hour = c.now().Add(time.Hour)
	must(t, r, ofKey("pay", "api", "user=7", "blocked", hour))
	end := set("pay", "api", nil, record.Expect{})
	end.Edits[0].End = []string{"user=7"}
	assert.Len(t, must(t, r, end).Ended, 1)
	assert.Empty(t, holds(t, r, "pay", "api").Keys)
	must(t, r, ofKey("pay", "api", "user=7", "blocked", hour))
	assert.Len(t, must(t, r, ofKey("pay", "api", "user=7", "blocked", time.Time{})).Ended, 1)
	must(t, r, ofText("pay", "api", "10/1m", hour))
	assert.Len(t, must(t, r, set("pay", "api", nil, record.Expect{})).Ended, 1, "the policy is deleted")
	c.sleep(2 * time.Hour)
	ended, err := r.EndDue(t.Context())
	require.NoError(t, err)
	assert.Empty(t, ended)
	assert.Nil(t, holds(t, r, "pay", "api"))
}

// Of a file with many policies, each is written beneath what is temporary of it.
func TestFileBeneathTemporaryChanges(t *testing.T) {
	c := newClock()
	r := recordtest.OpenAt(t, sqltest.New(t), c.now)
	file := record.Change{App: "pay", Action: "apply", Beneath: true}
	for i := range 20 {
		file.Edits = append(file.Edits, record.Edit{Name: fmt.Sprint("p", i), Policy: text("1/1m")})
	}
	must(t, r, file)
	for i := range 3 {
		must(t, r, ofText("pay", fmt.Sprint("p", i), "9/1m", c.now().Add(time.Hour)))
	}
	for i := range file.Edits {
		file.Edits[i].Policy = text("2/1m")
	}
	outcome := must(t, r, file)
	assert.Len(t, outcome.Differences, 20)
	assert.Len(t, outcome.Beneath, 3)
	assert.Equal(t, "9/1m", holds(t, r, "pay", "p0").Text)
	assert.Equal(t, "2/1m", holds(t, r, "pay", "p3").Text)
	c.sleep(time.Hour)
	_, err := r.EndDue(t.Context())
	require.NoError(t, err)
	for i := range 20 {
		assert.Equal(t, "2/1m", holds(t, r, "pay", fmt.Sprint("p", i)).Text)
	}
}

// An operator has a week for a part, however often it is set again, and changes numbers alone.
func TestOperatorsTerm(t *testing.T) {
	c := newClock()
	r := recordtest.OpenAt(t, sqltest.New(t), c.now)
	must(t, r, set("pay", "api", text("100/1m; epoch 2"), record.Expect{}))
	day := 24 * time.Hour
	in := func(d time.Duration) time.Time { return c.now().Add(d) }
	var invalid *record.InvalidError
	try := func(change record.Change) error {
		change.Edits[0].Operator = true
		_, err := r.Change(t.Context(), change)
		return err
	}
	require.ErrorAs(t, try(ofKey("pay", "api", "user=7", "blocked", in(8*day))), &invalid)
	require.ErrorAs(t, try(ofKey("pay", "api", "user=7", "blocked", in(0))), &invalid)
	require.NoError(t, try(ofKey("pay", "api", "user=7", "blocked", in(6*day))))
	c.sleep(5 * day)
	require.ErrorAs(t, try(ofKey("pay", "api", "user=7", "10/1m", in(6*day))), &invalid)
	require.NoError(t, try(ofKey("pay", "api", "user=7", "10/1m", in(2*day))))
	c.sleep(2 * day)
	_, err := r.EndDue(t.Context())
	require.NoError(t, err)
	assert.Empty(t, holds(t, r, "pay", "api").Keys)
	c.sleep(time.Hour)
	require.ErrorAs(t, try(ofKey("pay", "api", "user=7", "10/1m", in(day))), &invalid, "it has not been off for a day")
	must(t, r, ofKey("pay", "api", "user=7", "10/1m", in(30*day))) // an owner may go on
	for _, change := range []record.Change{
		ofKey("pay", "api", "user=7", "20/1m", in(day)), ofKey("pay", "api", "user=7", "", in(day)), endOf("pay", "api", "user=7"),
	} {
		require.ErrorAs(t, try(change), &invalid, "for longer than a week")
		assert.ErrorContains(t, try(change), "an owner can end or change it")
	}
	c.sleep(23 * day)
	require.NoError(t, try(ofKey("pay", "api", "user=7", "20/1m", in(day))), "what an owner wrote ends within a week")
	must(t, r, ofKey("pay", "api", "user=7", "10/1m", in(7*day)))
	require.NoError(t, try(endOf("pay", "api", "user=7")))
	require.NoError(t, try(ofKey("pay", "api", "user=8", "10/1m", in(day))))

	for _, text := range []string{
		"100/1m; epoch 3", "100/1m", "100/1m; epoch 2; fail open", "100/1m fixed-window; epoch 2", "100/1h; epoch 2", "1/1m, 2/1h; epoch 2",
	} {
		require.ErrorAs(t, try(ofText("pay", "api", text, in(day))), &invalid, text)
	}
	for _, text := range []string{"200/1m; epoch 2", "1/1m; epoch 2", "100/1m; shadow; epoch 2"} {
		require.NoError(t, try(ofText("pay", "api", text, in(day))), text)
	}
	for _, text := range []string{"unlimited", "5/1m fixed-window", "5/1m; fail open"} {
		require.ErrorAs(t, try(ofKey("pay", "api", "user=9", text, in(day))), &invalid, text)
	}
	// Where the record has nothing, the code of the processes says what other numbers are.
	code := ofText("pay", "new", "50/1m; shadow", in(day))
	require.ErrorAs(t, try(code), &invalid)
	code.Announced = []record.Announced{{App: "pay", Process: "p", Policy: "new", Code: "60/1m; fail closed"}}
	require.NoError(t, try(code))
	code = ofText("pay", "newer", "50/1m; fail open", in(day))
	code.Announced = []record.Announced{{App: "pay", Process: "p", Policy: "newer", Code: "60/1m; fail closed"}}
	require.ErrorAs(t, try(code), &invalid)
}

// An edit of one part is stale only if that part was changed.
func TestStalePartIsRefused(t *testing.T) { sqltest.Each(t, stalePartIsRefused) }

func stalePartIsRefused(t *testing.T, location string) {
	r := recordtest.Open(t, location)
	read := must(t, r, set("pay", "api", text("100/1m"), record.Expect{})).Revision
	change := func(c record.Change) error {
		c.Edits[0].Expect.Revision = read
		_, err := r.Change(t.Context(), c)
		return err
	}
	require.NoError(t, change(ofKey("pay", "api", "user=7", "blocked", time.Time{})))
	require.NoError(t, change(ofKey("pay", "api", "user=8", "blocked", time.Time{})))
	require.NoError(t, change(ofText("pay", "api", "50/1m", time.Time{})))
	var stale *record.StaleError
	require.ErrorAs(t, change(ofKey("pay", "api", "user=7", "10/1m", time.Time{})), &stale)
	require.ErrorAs(t, change(ofText("pay", "api", "40/1m", time.Time{})), &stale)
	assert.Equal(t, map[string]string{"user=7": "blocked", "user=8": "blocked"}, holds(t, r, "pay", "api").Keys)
}

// Several admins end what is due at once: each change once.
func TestEndDueAtOnce(t *testing.T) { sqltest.Each(t, endDueAtOnce) }

func endDueAtOnce(t *testing.T, location string) {
	c := newClock()
	admins := []*record.Record{}
	for range 3 {
		admins = append(admins, recordtest.OpenAt(t, location, c.now))
	}
	const n = 12
	for i := range n {
		must(t, admins[0], ofKey("pay", "api", fmt.Sprint("user=", i), "blocked", c.now().Add(time.Hour)))
	}
	c.sleep(time.Hour)
	var ended atomic.Int64
	var work sync.WaitGroup
	for _, r := range admins {
		work.Go(func() {
			all, err := r.EndDue(t.Context())
			ended.Add(int64(len(all)))
			assert.NoError(t, err)
		})
	}
	work.Wait()
	assert.Equal(t, int64(n), ended.Load())
	assert.Nil(t, holds(t, admins[0], "pay", "api"))
	past, err := admins[0].History(t.Context(), "pay", "api", 0, 100)
	require.NoError(t, err)
	assert.Len(t, past, 2*n)
}

// One that cannot be ended is tried again each minute, and the audit says so once.
func TestEndIsTriedAgain(t *testing.T) {
	c := newClock()
	db := sqltest.Open(t, sqltest.New(t))
	log := audit.New(db, audit.Options{Now: c.now})
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	r := record.New(db, log)
	full := &policies.Policy{Text: "100/1m", Keys: map[string]string{}}
	for i := range policies.MaxKeys {
		full.Keys[fmt.Sprint("user=", i)] = "1/1m"
	}
	must(t, r, set("pay", "api", full, record.Expect{}))
	must(t, r, ofKey("pay", "api", "user=7", "", c.now().Add(time.Hour)))
	must(t, r, ofKey("pay", "api", "user=another", "1/1m", time.Time{})) // which takes the last place
	c.sleep(time.Hour)
	for range 3 {
		ended, err := r.EndDue(t.Context())
		require.NoError(t, err)
		require.Empty(t, ended)
		c.sleep(2 * time.Minute)
	}
	stuck, err := r.Temporaries(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, stuck, 1)
	assert.Contains(t, stuck[0].Why, "at most 1000")
	rows, err := log.List(t.Context(), audit.Filter{Apps: []string{"pay"}, Policy: "api"})
	require.NoError(t, err)
	refused := 0
	for _, row := range rows {
		if row.Outcome == audit.Refused {
			refused++
		}
	}
	assert.Equal(t, 1, refused)
	must(t, r, ofKey("pay", "api", "user=another", "", time.Time{}))
	ended, err := r.EndDue(t.Context())
	require.NoError(t, err)
	assert.Len(t, ended, 1)
	assert.Equal(t, full.Keys, holds(t, r, "pay", "api").Keys)
}

// What keeps a temporary change from ending is said without the name of another app, whose document has no room for it.
func TestAnEndNamesNoOtherApp(t *testing.T) {
	c := newClock()
	db := sqltest.Open(t, sqltest.New(t))
	log := audit.New(db, audit.Options{Now: c.now})
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	r := record.New(db, log)
	must(t, r, set("pay", "api", &policies.Policy{Text: "100/1m", Apps: []string{"secret"}, Keys: map[string]string{"user=1": "1/1m"}}, record.Expect{}))
	must(t, r, ofKey("pay", "api", "user=1", "", c.now().Add(time.Hour)))
	full := &policies.Policy{Text: "100/1m", Keys: map[string]string{}}
	for range 600 {
		full.Keys[fmt.Sprintf("user=%0400d", len(full.Keys))] = "1/1m"
	}
	for left := policies.MaxSize; left >= 25; { // what comes back at the end takes 26 bytes
		full.Keys[fmt.Sprintf("user=%0*d", min(400, left-20), len(full.Keys))] = "1/1m"
		must(t, r, set("secret", "own", full, record.Expect{}))
		_, encoded, err := r.Document(t.Context(), "secret")
		require.NoError(t, err)
		left = policies.MaxSize - len(encoded)
	}
	c.sleep(time.Hour)
	ended, err := r.EndDue(t.Context())
	require.NoError(t, err)
	require.Empty(t, ended)
	stuck, err := r.Temporaries(t.Context(), "pay")
	require.NoError(t, err)
	require.Len(t, stuck, 1)
	rows, err := log.List(t.Context(), audit.Filter{Apps: []string{"pay"}, Action: "end"})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	for _, text := range []string{stuck[0].Why, rows[0].Reason} {
		assert.Contains(t, text, "the document of another app that uses it")
		assert.NotContains(t, text, "secret")
	}
}

// Any interleaving of temporary changes, edits, files and ends leaves what was asked for.
func TestTemporariesLeaveWhatWasAskedFor(t *testing.T) {
	c := newClock()
	r := recordtest.OpenAt(t, sqltest.New(t), c.now)
	apps := 0
	rapid.Check(t, func(rt *rapid.T) {
		apps++
		app := fmt.Sprint("app", apps%900)
		apply := func(change record.Change) {
			change.Force = true
			must(t, r, change)
		}
		if holds(t, r, app, "p") != nil {
			apply(set(app, "p", nil, record.Expect{}))
		}
		var base *policies.Policy // what is asked for without an end
		over := map[string]struct {
			text string
			ends time.Time
		}{}
		visible := func() *policies.Policy {
			p := base
			for _, key := range slices.Sorted(maps.Keys(over)) {
				p = patched(p, key, over[key].text)
			}
			return p
		}
		part := func(p *policies.Policy, key string) string {
			switch {
			case p == nil:
				return ""
			case key == "":
				return p.Text
			}
			return p.Keys[key]
		}
		keys := rapid.SampledFrom([]string{"", "user=1", "user=2"})
		texts := rapid.SampledFrom([]string{"1/1m", "2/1m", "3/1m"})
		plain := func(label string) *policies.Policy {
			p := somePolicy(rt, label)
			if p != nil {
				p.Apps = nil
			}
			return zeroIsNone(p)
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"temporary", "temporary", "edit", "file", "part", "end", "wait"}).Draw(rt, "step") {
			case "temporary":
				key, text := keys.Draw(rt, "key"), texts.Draw(rt, "text")
				ends := c.now().Add(time.Duration(rapid.IntRange(1, 5).Draw(rt, "hours")) * time.Hour)
				if key == "" {
					apply(ofText(app, "p", text, ends))
				} else {
					apply(ofKey(app, "p", key, text, ends))
				}
				over[key] = struct {
					text string
					ends time.Time
				}{text, ends}
				if part(base, key) == text {
					delete(over, key)
				}
			case "edit":
				p := plain("edited")
				before := visible()
				apply(set(app, "p", p, record.Expect{}))
				if p == nil {
					base = nil
					clear(over)
					break
				}
				now := copied(p)
				for key := range over {
					if part(p, key) == part(before, key) {
						now = patched(now, key, part(base, key))
					} else {
						delete(over, key)
					}
				}
				base = now
			case "file":
				base = plain("file")
				apply(record.Change{App: app, Action: "apply", Beneath: true, Edits: []record.Edit{{Name: "p", Policy: base}}})
			case "part":
				key, text := keys.Draw(rt, "key"), texts.Draw(rt, "text")
				if key == "" {
					apply(ofText(app, "p", text, time.Time{}))
				} else {
					apply(ofKey(app, "p", key, text, time.Time{}))
				}
				base = patched(base, key, text)
				delete(over, key)
			case "end":
				key := keys.Draw(rt, "key")
				end := set(app, "p", nil, record.Expect{})
				end.Edits[0].End = []string{key}
				apply(end)
				delete(over, key)
			case "wait":
				c.sleep(time.Hour)
				for key, o := range over {
					if !o.ends.After(c.now()) {
						delete(over, key)
					}
				}
				_, err := r.EndDue(t.Context())
				require.NoError(t, err)
			}
			if got, want := holds(t, r, app, "p"), visible(); !equal(got, want) {
				rt.Fatalf("%+v holds, and not %+v", got, want)
			}
		}
		c.sleep(6 * time.Hour)
		_, err := r.EndDue(t.Context())
		require.NoError(t, err)
		if got := holds(t, r, app, "p"); !equal(got, base) {
			rt.Fatalf("in the end %+v holds, and not %+v", got, base)
		}
	})
}

// patched returns p with another text, or other numbers of a key.
func patched(p *policies.Policy, key, text string) *policies.Policy {
	if key == "" {
		return record.Patch{Text: &text}.On(p)
	}
	return record.Patch{Keys: map[string]string{key: text}}.On(p)
}
