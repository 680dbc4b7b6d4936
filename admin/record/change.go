package record

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/core/policies"
)

// Change is a set of edits of the policies that belong to one app, of which all are made, or none.
type Change struct {
	App       string
	By        audit.Person
	Reason    string
	Action    string // for the history: "set", "delete", "apply", "rollback", "adopt", "add"
	Emergency bool   // for the audit
	Key       string // for the audit, if the change is of one key
	Edits     []Edit
	// Permit returns, if it is not nil, the function that decides on each policy that would be another one. It is
	// called once, within the change's transaction, so that rights which were lost before are none.
	Permit func(ctx context.Context, t sqldb.Tx) (Verdict, error)
	// Revision is that of the app as it was read: 0 expects nothing.
	Revision int64
	// Generation is a number that the generation of the app shall exceed. 0 leaves the generation as it is.
	Generation int64
	// Announced are the rules of services, which the texts must fit.
	Announced []Announced
	// Force writes what rules cannot use, and what goes back to an earlier epoch.
	Force bool
	// Back permits to go back to an earlier epoch.
	Back bool
	// Dry only finds out what would be different.
	Dry bool
	// Beneath writes beneath the temporary changes that hold: these go on, and what the edits say holds when they end.
	// Without it, the part of a policy that an edit changes is not temporary any more.
	Beneath bool
	// Reviewed reports whether another person has approved the change, and FromFiles whether it comes from the files from
	// which the policies of the app are kept. See Settings.
	Reviewed, FromFiles bool
	// Token is the number of the token that the change is made with, 0 for none: apps that are kept by it need no
	// approval. See Settings.KeptByToken.
	Token int64
	// Settings are those that the app shall have, if they are not nil.
	Settings *SettingsEdit
	// Delete deletes the app with all that belongs to it, if its State.Revision is that of Expect. Its history stays, and
	// new Settings bring it back.
	Delete bool
	Expect Expect
	// Also, if it is not nil, writes what belongs to the change and not to the record.
	Also func(context.Context, *sqldb.Change) error
}

// Edit is one policy as it shall be.
type Edit struct {
	Name   string
	Policy *policies.Policy // nil deletes it
	// Patch, if it is not nil, changes parts of the policy that is there, and Policy is not looked at.
	Patch *Patch
	// Expect is the version that was read. With a Patch, a later one in which the parts that it changes are the same is as
	// good.
	Expect Expect
	// Base, if it is not "", is the Base of the Patch on what was there beneath temporary changes, and the edit expects it.
	Base string
	read int64 // the revision of the policy when Base was found
	// Until, if it is not zero, is the end of what the Patch changes: its text, or its keys.
	Until time.Time
	// End ends the temporary changes of these keys, "" for the text; with Due only if their time is over.
	End []string
	Due bool
	// Operator permits no more than operators may do: for a week at most, other numbers and "shadow", and of what an owner
	// has written for a time the end of what would end within a week.
	Operator bool
}

// Expect is the version that an edit replaces. The zero Expect is any, or none.
type Expect struct {
	Revision int64 // if it is not 0
	Absent   bool  // that there is no policy
}

// Outcome is the result of a change.
type Outcome struct {
	// Head is that of the app now.
	Head Head
	// Affected are the documents that are other ones now, by the names of their apps.
	Affected []Head
	// Revision is that of the last policy of the edits.
	Revision    int64
	Differences []Difference
	// CannotUse lists the rules that cannot use what was forced.
	CannotUse []CannotUse
	// Ended are the temporary changes that the change has ended, because it changes the same, and Beneath are those that
	// go on, and hold for now instead of what was written.
	Ended, Beneath []Temporary
	// Settings is the revision of the app's settings, if they were written.
	Settings int64
}

// Difference is a policy before and after a change.
type Difference struct {
	Name          string
	Before, After *policies.Policy
	// Afresh reports whether all counts begin anew.
	Afresh bool
}

// Change makes a change as one transaction: either all of it is in the record when Change returns nil, with its
// history and its rows in the audit, or none of it. Edits that say what the record says already are no change. What it
// returns otherwise is one of the errors of this package, that of Permit, a *[sqldb.UnavailableError] or
// [sqldb.ErrUnknown].
func (r *Record) Change(ctx context.Context, c Change) (*Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, sqldb.MaxTime)
	defer cancel()
	prepared, err := r.Prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	var outcome *Outcome
	err = r.db.Change(ctx, func(ctx context.Context, t *sqldb.Change) error {
		var err error
		if outcome, err = prepared.Write(ctx, t); err == nil && c.Dry {
			err = errDry
		}
		return err
	})
	if err != nil && !errors.Is(err, errDry) {
		return nil, err
	}
	return outcome, nil
}

// Prepared is a change that was checked, as far as that can be done without the database.
type Prepared struct {
	record *Record
	change Change
	judged map[string]judged
}

// Prepare checks a change that is to be written as a part of another one. It may take long where services have announced
// many rules.
func (r *Record) Prepare(ctx context.Context, c Change) (*Prepared, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	expected, err := r.expected(ctx, &c)
	if err != nil {
		return nil, err
	}
	judged, err := c.judge(ctx, expected)
	if err != nil {
		return nil, err
	}
	return &Prepared{r, c, judged}, nil
}

// Write makes the change as a part of another one, which must be given up if Write returns an error, or if the change is
// a dry one.
func (p *Prepared) Write(ctx context.Context, t *sqldb.Change) (*Outcome, error) {
	w := &writer{
		Change: t, log: p.record.log, change: &p.change, judged: p.judged, at: p.record.now(), affected: map[string]bool{},
	}
	return w.all(ctx)
}

// checkReason finds what no database would keep as it is.
func checkReason(reason string) error {
	switch {
	case len(reason) > audit.MaxReason:
		return &InvalidError{Err: fmt.Errorf("the reason has %d bytes; give at most %d", len(reason), audit.MaxReason)}
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl):
		return &InvalidError{Err: fmt.Errorf("found the reason %.100q; give one line of text", reason)}
	}
	return nil
}

// check finds the mistakes that can be seen without the database, all at once.
func (c *Change) check() error {
	if err := policies.CheckApp(c.App); err != nil && c.App != policies.AllApps {
		return &InvalidError{Err: err}
	}
	if err := checkReason(c.Reason); err != nil {
		return err
	}
	if err := c.Settings.check(); err != nil {
		return &InvalidError{Err: err}
	}
	document := newDocument()
	for i, e := range c.Edits {
		if err := policies.CheckName(e.Name); err != nil {
			return &InvalidError{Err: err}
		}
		if e.Policy == nil {
			continue
		}
		p := *e.Policy
		p.Apps = slices.Sorted(slices.Values(p.Apps))
		if err := c.checkApps(e.Name, p.Apps); err != nil {
			return err
		}
		c.Edits[i].Policy = &p
		document.Policies[e.Name] = p
	}
	if err := document.Check(); err != nil {
		return &InvalidError{Err: err}
	}
	return nil
}

func newDocument() *policies.Document {
	return &policies.Document{
		App: "app", Version: policies.Version{Generation: 1, Revision: 1},
		Policies: map[string]policies.Policy{},
	}
}

func (c *Change) checkApps(name string, apps []string) error {
	if slices.Contains(apps, c.App) || c.App == policies.AllApps && len(apps) > 0 {
		return &InvalidError{Name: name, Err: fmt.Errorf("app %q uses it as its owner; leave it out of the apps", c.App)}
	}
	return nil
}

// checkPolicy finds the mistakes of one policy that a Patch has made.
func (c *Change) checkPolicy(name string, p *policies.Policy) error {
	if p == nil {
		return nil
	}
	if err := c.checkApps(name, p.Apps); err != nil {
		return err
	}
	document := newDocument()
	document.Policies[name] = *p
	if err := document.Check(); err != nil {
		return &InvalidError{Err: err}
	}
	return nil
}

// Verdict decides on a policy whose users are apps: its owner, and those that it names, before or after. name is ""
// for a change of the app itself. Its error is that of the change.
type Verdict func(name string, apps []string) error

// users returns the apps that use versions of a policy: its owner, and those that they name.
func (c *Change) users(versions ...*policies.Policy) []string {
	apps := []string{c.App}
	for _, p := range versions {
		if p != nil {
			apps = append(apps, p.Apps...)
		}
	}
	slices.Sort(apps)
	return slices.Compact(apps)
}

// writer writes one change.
type writer struct {
	*sqldb.Change

	log      *audit.Log
	change   *Change
	judged   map[string]judged // of the edits
	at       time.Time
	affected map[string]bool  // apps whose documents change
	guarded  map[string]guard // apps, once they have been read
	verdict  Verdict          // once it was asked for

	temporary map[string][]Temporary // of the app's policies, once they have been read
	created   bool                   // whether there is one policy more
	outcome   Outcome
}

func (w *writer) all(ctx context.Context) (*Outcome, error) {
	c := w.change
	head, known, err := headOf(ctx, w.Tx, c.App)
	if err != nil {
		return nil, err
	}
	if c.Revision != 0 && head.Version.Revision != c.Revision {
		return nil, w.stale(ctx, "", c.Revision, head.Version.Revision)
	}
	state, err := stateOf(ctx, w.Tx, c.App)
	switch {
	case err != nil:
		return nil, err
	case state.Deleted && c.Settings == nil, c.Delete && !known:
		return nil, &NotFoundError{App: c.App}
	}
	if c.Delete {
		if err := w.deleteApp(ctx, &state); err != nil {
			return nil, err
		}
	}
	for _, e := range c.Edits {
		if err := w.edit(ctx, e); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(w.outcome.Differences, func(a, b Difference) int { return strings.Compare(a.Name, b.Name) })
	if len(w.outcome.CannotUse) > 0 && !c.Force {
		return nil, &FormError{w.outcome.CannotUse}
	}
	if c.Generation > 0 || len(c.Edits) == 0 && !known && c.Settings == nil {
		w.affected[c.App] = true
		if err := w.permit(ctx, "", []string{c.App}, false); err != nil {
			return nil, err
		}
		if err := w.version(ctx, "", held{}, &course{}); err != nil {
			return nil, err
		}
	}
	if c.Settings != nil && !known {
		w.affected[c.App] = true // an empty document is published
	}
	if len(w.affected) > 0 {
		if err := w.publish(ctx); err != nil {
			return nil, err
		}
		if head, _, err = headOf(ctx, w.Tx, c.App); err != nil {
			return nil, err
		}
	}
	if c.Settings != nil { // when the app has its row
		if err := w.settings(ctx, &state); err != nil {
			return nil, err
		}
	}
	if c.Also != nil {
		if err := c.Also(ctx, w.Change); err != nil {
			return nil, err
		}
	}
	w.outcome.Head = head
	slices.SortFunc(w.outcome.Affected, func(a, b Head) int { return strings.Compare(a.App, b.App) })
	return &w.outcome, nil
}

// held is a policy as it is, or was.
type held struct {
	policy   *policies.Policy // nil if there is none
	revision int64            // also that of a deletion; 0 if there never was one
}

func heldOf(ctx context.Context, t sqldb.Tx, app, name string) (held, error) {
	var h held
	var deleted bool
	var text string
	err := t.Row(ctx, `SELECT revision, deleted, body FROM weir_policies WHERE app = ? AND name = ?`, app, name).
		Scan(&h.revision, &deleted, &text)
	if errors.Is(err, sql.ErrNoRows) {
		return h, nil
	}
	if err == nil && !deleted {
		var p policies.Policy
		p, err = decode(text)
		h.policy = &p
	}
	return h, err
}

// edit writes one policy, its version and its row of the history, who uses it, and what is temporary about it.
func (w *writer) edit(ctx context.Context, e Edit) error {
	before, err := heldOf(ctx, w.Tx, w.change.App, e.Name)
	if err != nil {
		return err
	}
	w.outcome.Revision = before.revision
	if err := w.expect(ctx, &e, before); err != nil {
		return err
	}
	if err := w.alone(ctx, &e, before.policy); err != nil {
		return err
	}
	course, err := w.course(ctx, &e, before.policy)
	if err != nil || course == nil {
		return err
	}
	apps := w.change.users(before.policy, course.after, course.to)
	if err := w.permit(ctx, e.Name, apps, e.Until.IsZero() && e.End == nil); err != nil {
		return err
	}
	difference := Difference{Name: e.Name, Before: course.from, After: course.to}
	if !says(course.from, course.to) {
		if err := w.door(&difference); err != nil {
			return err
		}
		w.outcome.Differences = append(w.outcome.Differences, difference)
	}
	if err := w.writeTemporary(ctx, e.Name, course); err != nil {
		return err
	}
	if says(before.policy, course.after) { // nothing but the end of a temporary change, or what is beneath it
		return w.log.Append(ctx, w.Change, w.row(e.Name, before.revision, before.revision, course))
	}
	w.outcome.Revision = w.Revision()
	w.created = w.created || before.policy == nil
	if err := w.use(ctx, e.Name, before.policy, course.after); err != nil {
		return err
	}
	return w.version(ctx, e.Name, before, course)
}

// says reports whether two policies say the same, or both are none.
func says(p, q *policies.Policy) bool {
	if p == nil || q == nil {
		return p == q
	}
	return same(*p, *q)
}

// expect returns a *StaleError if something else is there than an edit expects.
func (w *writer) expect(ctx context.Context, e *Edit, before held) error {
	current := before.revision
	if before.policy == nil {
		current = 0
	}
	if (!e.Expect.Absent || current == 0) && (e.Expect.Revision == 0 || e.Expect.Revision == current) {
		return nil
	}
	if e.Patch != nil && e.Expect.Absent && e.Patch.Base(nil) == e.Patch.Base(before.policy) {
		return nil // only something else is there
	}
	if e.Patch != nil && e.Expect.Revision != 0 {
		read, err := versionOf(ctx, w.Tx, w.change.App, e.Name, e.Expect.Revision)
		if err == nil && e.Patch.Base(read) == e.Patch.Base(before.policy) {
			return nil // only something else was changed
		}
		if err != nil && !errors.As(err, new(*NotFoundError)) {
			return err
		}
	}
	return w.stale(ctx, e.Name, e.Expect.Revision, current)
}

// version writes what a policy is from now on, and its rows of the history and of the audit. Without a name these are of
// the app.
func (w *writer) version(ctx context.Context, name string, before held, course *course) (err error) {
	c, after := w.change, course.after
	text, deleted := "", true
	if after != nil {
		deleted = false
		if text, err = encode(*after); err != nil {
			return err
		}
	}
	if name != "" {
		n, err := w.Exec(ctx, `UPDATE weir_policies SET revision = ?, deleted = ?, body = ? WHERE app = ? AND name = ?`,
			w.Revision(), bit(deleted), text, c.App, name)
		if err == nil && n == 0 {
			_, err = w.Exec(ctx, `INSERT INTO weir_policies (app, name, revision, deleted, body) VALUES (?, ?, ?, ?, ?)`,
				c.App, name, w.Revision(), bit(deleted), text)
		}
		if err != nil {
			return err
		}
	}
	if _, err := w.Exec(ctx, `INSERT INTO weir_versions (app, name, revision, deleted, body, at, person, shown, reason, action,
		forced) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, c.App, name, w.Revision(), bit(deleted), text,
		w.at.UnixMicro(), c.By.ID, c.By.Name, c.Reason, c.Action, bit(c.forced())); err != nil {
		return err
	}
	return w.log.Append(ctx, w.Change, w.row(name, w.Revision(), before.revision, course))
}

// row returns the row of the audit for a course that a policy takes.
func (w *writer) row(name string, revision, was int64, course *course) audit.Row {
	c := w.change
	return audit.Row{
		At: w.at, By: c.By, App: c.App, Policy: name, Action: c.Action, Reason: c.Reason, Revision: revision,
		Was: was, Forced: c.forced(), Emergency: c.Emergency, Key: c.Key, Detail: course.detail(c.Key),
	}
}

// forced reports whether somebody has insisted. Nobody has on the end of something temporary, which always goes back to
// what was there before.
func (c *Change) forced() bool { return c.Force && c.Action != "end" }

// bit returns a boolean as all databases have it.
func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// use writes which apps use a policy: its owner, and those that it names.
func (w *writer) use(ctx context.Context, name string, before, after *policies.Policy) error {
	owner := w.change.App
	users := func(p *policies.Policy) []string {
		if p == nil {
			return nil
		}
		return append([]string{owner}, p.Apps...)
	}
	was := map[string]bool{}
	for _, app := range users(before) {
		was[app] = true
		w.affected[app] = true
	}
	for _, app := range users(after) {
		w.affected[app] = true
		if was[app] {
			delete(was, app)
			continue
		}
		var other string
		err := w.Row(ctx, `SELECT owner FROM weir_users WHERE app = ? AND name = ?`, app, name).Scan(&other)
		if err == nil {
			return &TakenError{App: app, Name: name, Owner: other}
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if _, err := w.Exec(ctx, `INSERT INTO weir_users (app, name, owner) VALUES (?, ?, ?)`, app, name, owner); err != nil {
			return err
		}
	}
	for app := range was {
		if _, err := w.Exec(ctx, `DELETE FROM weir_users WHERE app = ? AND name = ? AND owner = ?`, app, name, owner); err != nil {
			return err
		}
	}
	return nil
}

// stale returns a *StaleError that names who was there before.
func (w *writer) stale(ctx context.Context, name string, expected, current int64) error {
	e := &StaleError{Name: name, Expected: expected, Current: current}
	for _, apps := range []string{
		`?`,
		// The document of an app changes as well with what others lend it.
		`(SELECT owner FROM weir_users WHERE app = ? OR app = '*')`,
	} {
		var at int64
		err := w.Row(ctx, `SELECT shown, at FROM weir_versions WHERE revision = ? AND app IN (`+apps+`) LIMIT 1`,
			current, w.change.App).Scan(&e.Who, &at)
		if err == nil {
			e.At = time.UnixMicro(at)
			return e
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return e
}

// publish gives each affected app its next version, with the digest of its document, so that a change that cannot be
// published is not made.
func (w *writer) publish(ctx context.Context) error {
	generations, isNew, err := w.generations(ctx)
	if err != nil {
		return err
	}
	if err := w.count(ctx, isNew); err != nil {
		return err
	}
	versions := map[string]policies.Version{}
	for app := range w.affected {
		version := policies.Version{Generation: generations[app], Revision: w.Revision()}
		if app == w.change.App && w.change.Generation > 0 {
			version.Generation = max(version.Generation, w.change.Generation) + 1
		}
		versions[app] = version
	}
	every, everyone := versions[policies.AllApps]
	delete(versions, policies.AllApps)
	all, err := render(ctx, w.Tx, versions)
	if err != nil {
		return err
	}
	for _, made := range all {
		head := Head{App: made.document.App, Version: made.document.Version, Digest: made.digest}
		if err := w.put(ctx, head, isNew[head.App]); err != nil {
			return err
		}
		w.outcome.Affected = append(w.outcome.Affected, head)
	}
	if everyone {
		return w.put(ctx, Head{App: policies.AllApps, Version: every}, isNew[policies.AllApps])
	}
	return nil
}

// generations returns those of the affected apps, which are all apps if policies of all are, and which of them are new.
func (w *writer) generations(ctx context.Context) (generations map[string]int64, isNew map[string]bool, err error) {
	generations, isNew = map[string]int64{}, map[string]bool{}
	scan := func(row sqldb.Row) error {
		var app string
		var generation int64
		err := row.Scan(&app, &generation)
		generations[app] = generation
		return err
	}
	const query = `SELECT app, generation FROM weir_apps`
	if w.affected[policies.AllApps] {
		if err := w.Each(ctx, scan, query); err != nil {
			return nil, nil, err
		}
		for app := range generations {
			w.affected[app] = true
		}
	}
	for app := range w.affected {
		if _, read := generations[app]; read {
			continue
		}
		if err := w.Each(ctx, scan, query+` WHERE app = ?`, app); err != nil {
			return nil, nil, err
		}
		if _, there := generations[app]; !there {
			generations[app], isNew[app] = 1, true
		}
	}
	return generations, isNew, nil
}

// count refuses more apps and policies than a record has. The new apps are not written yet, the policies are.
func (w *writer) count(ctx context.Context, isNew map[string]bool) error {
	var n int
	if len(isNew) > 0 {
		if err := w.Row(ctx, `SELECT COUNT(*) FROM weir_apps WHERE app <> '*'`).Scan(&n); err != nil {
			return err
		}
		for app := range isNew {
			if app != policies.AllApps { // which is no app
				n++
			}
		}
		if n > MaxApps {
			return &InvalidError{Err: fmt.Errorf("the record would know %d apps; at most %d", n, MaxApps)}
		}
	}
	if !w.created { // counting takes as long as the rest of a change
		return nil
	}
	if err := w.Row(ctx, `SELECT COUNT(*) FROM weir_policies WHERE deleted = 0`).Scan(&n); err != nil {
		return err
	}
	if n > MaxPolicies {
		return &InvalidError{Err: fmt.Errorf("the record would have %d policies; at most %d: delete some that no app uses",
			n, MaxPolicies)}
	}
	return nil
}

// Of the documents that an app had, about the last keptDocuments are known: when one more is written, the rest is
// deleted with a probability of 1 in prunes.
const (
	keptDocuments = 1000
	prunes        = 64
)

// put writes the head of an app.
func (w *writer) put(ctx context.Context, h Head, isNew bool) error {
	query := `UPDATE weir_apps SET generation = ?, revision = ?, digest = ? WHERE app = ?`
	if isNew {
		query = `INSERT INTO weir_apps (generation, revision, digest, app) VALUES (?, ?, ?, ?)`
	}
	if _, err := w.Exec(ctx, query, h.Version.Generation, h.Version.Revision, h.Digest, h.App); err != nil {
		return err
	}
	if h.App == policies.AllApps {
		return nil
	}
	if _, err := w.Exec(ctx, `INSERT INTO weir_documents (app, generation, revision, digest) VALUES (?, ?, ?, ?)`,
		h.App, h.Version.Generation, h.Version.Revision, h.Digest); err != nil {
		return err
	}
	if rand.N(prunes) > 0 {
		return nil
	}
	return w.prune(ctx, h.App)
}

// prune forgets the documents of an app before the last keptDocuments.
func (w *writer) prune(ctx context.Context, app string) error {
	var last policies.Version
	err := w.Row(ctx, fmt.Sprintf(`SELECT generation, revision FROM weir_documents WHERE app = ?
		ORDER BY generation DESC, revision DESC LIMIT 1 OFFSET %d`, keptDocuments), app).Scan(&last.Generation, &last.Revision)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err == nil {
		_, err = w.Exec(ctx, `DELETE FROM weir_documents
			WHERE app = ? AND (generation < ? OR generation = ? AND revision <= ?)`,
			app, last.Generation, last.Generation, last.Revision)
	}
	return err
}
