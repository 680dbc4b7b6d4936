package record

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/core/policies"
)

// Temporary is a change of one part of a policy that ends by itself: then the part becomes again what it was before.
type Temporary struct {
	App, Name string
	Key       string // the key whose numbers it changes, or "" for the text of the policy
	Former    string // the text that holds again at the end; "" is none
	Text      string // the text that holds until then; "" is none
	Began     time.Time
	Ends      time.Time
	// Operator reports whether all that was written here since Began was written by operators, who have a week.
	Operator bool
	By       audit.Person // the last author
	Reason   string
	// Why is the reason why it could not be ended at its time, or "". It is tried again each minute.
	Why string

	ended time.Time // zero while it holds
}

// Bounds of temporary changes.
const (
	OperatorsTerm = 7 * 24 * time.Hour // from the first change of a part on, until it has not been temporary for a day
	longestTerm   = 366 * 24 * time.Hour
	rest          = 24 * time.Hour
	maxTemporary  = 2 * policies.MaxKeys // of a policy, with those that have ended within rest
	dueAtOnce     = 100                  // that one call of EndDue ends
	tryAgain      = time.Minute
)

// part returns the text of a policy, or that of a key of it: "" is no key.
func part(p *policies.Policy, key string) string {
	switch {
	case p == nil:
		return ""
	case key == "":
		return p.Text
	}
	return p.Keys[key]
}

// Beneath returns a policy as it is when all of the temporary changes have ended.
func Beneath(p *policies.Policy, all []Temporary) *policies.Policy {
	for _, t := range all {
		p = patchOfPart(t.Key, t.Former).On(p)
	}
	return p
}

// over returns a policy as it is while all of the temporary changes hold.
func over(p *policies.Policy, all []Temporary) *policies.Policy {
	for _, t := range all {
		p = patchOfPart(t.Key, t.Text).On(p)
	}
	return p
}

// course is the way that a policy takes in a change.
type course struct {
	from, to *policies.Policy // as the change wants it, beneath what is temporary if it writes there
	after    *policies.Policy // what holds from now on
	put      []Temporary
	ended    []Temporary
	until    time.Time
}

// course finds the way of an edit, nil if nothing changes.
func (w *writer) course(ctx context.Context, e *Edit, before *policies.Policy) (*course, error) {
	known, err := w.temporaries(ctx, e.Name)
	if err != nil {
		return nil, err
	}
	running := slices.DeleteFunc(slices.Clone(known), func(t Temporary) bool { return !t.ended.IsZero() })
	if e.Base != "" && e.Patch.Base(Beneath(before, running)) != e.Base {
		h, err := heldOf(ctx, w.Tx, w.change.App, e.Name)
		if err != nil {
			return nil, err
		}
		return nil, w.stale(ctx, e.Name, e.read, h.revision)
	}
	c := &course{from: before}
	switch {
	case e.End != nil:
		for _, t := range running {
			if slices.Contains(e.End, t.Key) {
				if err := w.mayEnd(e, &t); err != nil {
					return nil, err
				}
			}
		}
		c.end(e, running, before, w.at)
	case !e.Until.IsZero():
		if err := w.begin(c, e, known, before); err != nil {
			return nil, err
		}
	case w.change.Beneath:
		c.beneath(e, running, before)
	default:
		c.write(e, running, before)
	}
	if says(before, c.after) && says(c.from, c.to) && len(c.put)+len(c.ended) == 0 {
		return nil, nil //nolint:nilnil // nothing changes
	}
	if e.Patch != nil || e.End != nil || w.change.Beneath {
		for _, p := range []*policies.Policy{c.after, c.to} {
			if err := w.change.checkPolicy(e.Name, p); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// temporaries returns the temporary changes of a policy, also those that ended not long ago. Those of many policies are
// read by one query.
func (w *writer) temporaries(ctx context.Context, name string) (all []Temporary, err error) {
	if len(w.change.Edits) <= few {
		return temporariesOf(ctx, w.Tx, `WHERE app = ? AND name = ?`, w.change.App, name)
	}
	if w.temporary == nil {
		all, err := temporariesOf(ctx, w.Tx, `WHERE app = ?`, w.change.App)
		if err != nil {
			return nil, err
		}
		w.temporary = map[string][]Temporary{}
		for _, t := range all {
			w.temporary[t.Name] = append(w.temporary[t.Name], t)
		}
	}
	return w.temporary[name], nil
}

// write is the course of an edit that makes what it changes no temporary change any more.
func (c *course) write(e *Edit, running []Temporary, before *policies.Policy) {
	c.to = e.Policy
	if e.Patch != nil {
		c.to = e.Patch.On(before)
	}
	c.after = c.to
	for _, t := range running {
		// Of a policy that is deleted, nothing comes back, not even what was taken away for a time.
		if c.after == nil || part(c.after, t.Key) != t.Text || e.Patch != nil && e.Patch.changes(t.Key) {
			c.ended = append(c.ended, t)
		}
	}
}

// beneath is the course of an edit that leaves temporary changes as they are, and writes what holds when they end.
func (c *course) beneath(e *Edit, running []Temporary, before *policies.Policy) {
	c.from = Beneath(before, running)
	c.to = e.Policy
	if e.Patch != nil {
		c.to = e.Patch.On(c.from)
	}
	c.after = over(c.to, running)
	for _, t := range running {
		if former := part(c.to, t.Key); former != t.Former {
			t.Former = former
			c.put = append(c.put, t)
		}
	}
}

// end is the course of an edit that ends temporary changes.
func (c *course) end(e *Edit, running []Temporary, before *policies.Policy, now time.Time) {
	c.after = before
	for _, t := range running {
		if !slices.Contains(e.End, t.Key) || e.Due && t.Ends.After(now) {
			continue
		}
		if part(before, t.Key) == t.Text { // which it is, unless somebody has written to the database by hand
			c.after = patchOfPart(t.Key, t.Former).On(c.after)
		}
		c.ended = append(c.ended, t)
	}
	c.to = c.after
}

// begin is the course of an edit that is temporary.
func (w *writer) begin(c *course, e *Edit, known []Temporary, before *policies.Policy) error {
	wrong := func(format string, args ...any) error {
		return &InvalidError{Name: e.Name, Err: fmt.Errorf(format, args...)}
	}
	if e.Patch == nil || e.Patch.Tiers != nil || e.Patch.Apps != nil {
		return wrong("only a text and numbers of keys can be temporary; leave tiers and apps out")
	}
	if !e.Until.After(w.at) {
		return wrong("the end %s is over already; give a time to come", e.Until.UTC().Format(time.RFC3339))
	}
	c.until = e.Until
	c.to = e.Patch.On(before)
	c.after = c.to
	for key, text := range e.Patch.parts() {
		t := Temporary{
			App: w.change.App, Name: e.Name, Key: key, Former: part(before, key), Text: text, Began: w.at, Ends: e.Until,
			Operator: e.Operator, By: w.change.By, Reason: w.change.Reason,
		}
		at := slices.IndexFunc(known, func(t Temporary) bool { return t.Key == key })
		if at >= 0 {
			earlier := known[at]
			if earlier.ended.IsZero() {
				t.Former = earlier.Former
				if err := w.mayEnd(e, &earlier); err != nil {
					return err
				}
			}
			if t.Operator && earlier.Operator && (earlier.ended.IsZero() || w.at.Sub(earlier.ended) < rest) {
				t.Began = earlier.Began
			}
		} else if len(known)+len(c.put) >= maxTemporary {
			return wrong("there are %d temporary changes of it already, with those that ended today; write a tier or a text", len(known))
		}
		last := t.Began.Add(longestTerm)
		if t.Operator {
			last = t.Began.Add(OperatorsTerm)
		}
		if t.Ends.After(last) {
			return wrong("the end %s is too late: it may hold until %s; an owner can write it without an end, or for longer",
				t.Ends.UTC().Format(time.RFC3339), last.UTC().Format(time.RFC3339))
		}
		if e.Operator {
			if err := w.numbers(e.Name, key, text, before); err != nil {
				return wrong("%w; an owner can write it", err)
			}
		}
		switch {
		case text != t.Former:
			c.put = append(c.put, t)
		case at >= 0 && known[at].ended.IsZero(): // back to what was there before
			c.ended = append(c.ended, known[at])
		}
	}
	return nil
}

// mayEnd returns an error if an edit of an operator would end what an owner has written for longer than an operator's
// changes hold: what was there before would hold instead.
func (w *writer) mayEnd(e *Edit, t *Temporary) error {
	if !e.Operator || t.Operator || !t.Ends.After(w.at.Add(OperatorsTerm)) {
		return nil
	}
	return &InvalidError{Name: e.Name, Err: fmt.Errorf(
		"an owner has written what holds until %s, which is more than a week from now; an owner can end or change it",
		t.Ends.UTC().Format(time.RFC3339))}
}

// changes reports whether p changes the text of a policy, or that of a key of it: "" is no key.
func (p Patch) changes(key string) bool {
	if key == "" {
		return p.Text != nil
	}
	_, found := p.Keys[key]
	return found
}

// parts returns the texts that p changes by their keys: "" is that of the policy.
func (p Patch) parts() map[string]string {
	all := maps.Clone(p.Keys)
	if all == nil {
		all = map[string]string{}
	}
	if p.Text != nil {
		all[""] = *p.Text
	}
	return all
}

// element returns the name of a part of a policy in the database, where a key may be too long for an index.
func element(key string) string {
	if key == "" {
		return "text"
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// writeTemporary writes what is temporary in a course, and forgets what was long ago.
func (w *writer) writeTemporary(ctx context.Context, name string, c *course) error {
	app := w.change.App
	for _, t := range c.put {
		n, err := w.Exec(ctx, `UPDATE weir_temporary SET former = ?, wrote = ?, began = ?, ends = ?, ended = 0, due = ?,
			operator = ?, person = ?, shown = ?, reason = ?, why = '' WHERE app = ? AND name = ? AND element = ?`,
			t.Former, t.Text, t.Began.UnixMicro(), t.Ends.UnixMicro(), t.Ends.UnixMicro(), bit(t.Operator), t.By.ID, t.By.Name,
			t.Reason, app, name, element(t.Key))
		if err == nil && n == 0 {
			_, err = w.Exec(ctx, `INSERT INTO weir_temporary (app, name, element, text, former, wrote, began, ends, ended, due,
				operator, person, shown, reason, why) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, '')`, app, name,
				element(t.Key), t.Key, t.Former, t.Text, t.Began.UnixMicro(), t.Ends.UnixMicro(), t.Ends.UnixMicro(),
				bit(t.Operator), t.By.ID, t.By.Name, t.Reason)
		}
		if err != nil {
			return err
		}
	}
	for _, t := range c.ended {
		if _, err := w.Exec(ctx, `UPDATE weir_temporary SET ended = ? WHERE app = ? AND name = ? AND element = ?`,
			w.at.UnixMicro(), app, name, element(t.Key)); err != nil {
			return err
		}
	}
	if len(c.put)+len(c.ended) > 0 {
		if _, err := w.Exec(ctx, `DELETE FROM weir_temporary WHERE app = ? AND name = ? AND ended > 0 AND ended < ?`,
			app, name, w.at.Add(-rest).UnixMicro()); err != nil {
			return err
		}
	}
	w.outcome.Ended = append(w.outcome.Ended, c.ended...)
	if w.change.Beneath {
		w.outcome.Beneath = append(w.outcome.Beneath, c.put...)
	}
	return nil
}

// temporariesOf returns the temporary changes that a condition selects, also those that ended not long ago.
func temporariesOf(ctx context.Context, t sqldb.Tx, where string, args ...any) (all []Temporary, err error) {
	err = t.Each(ctx, func(row sqldb.Row) error {
		var found Temporary
		var began, ends, ended int64
		if err := row.Scan(&found.App, &found.Name, &found.Key, &found.Former, &found.Text, &began, &ends, &ended, &found.Operator,
			&found.By.ID, &found.By.Name, &found.Reason, &found.Why); err != nil {
			return err
		}
		found.Began, found.Ends = time.UnixMicro(began).UTC(), time.UnixMicro(ends).UTC()
		if ended > 0 {
			found.ended = time.UnixMicro(ended).UTC()
		}
		all = append(all, found)
		return nil
	}, `SELECT app, name, text, former, wrote, began, ends, ended, operator, person, shown, reason, why FROM weir_temporary `+where,
		args...)
	return all, err
}

// Temporaries returns the temporary changes of an app's policies that hold, those first that end first. Of an app "" it
// returns those of all apps that could not be ended at their time.
func (r *Record) Temporaries(ctx context.Context, app string) (all []Temporary, err error) {
	if app == "" {
		err = r.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
			all, err = temporariesOf(ctx, t, `WHERE ended = 0 AND why <> '' ORDER BY ends, app, name, element`)
			return err
		})
		return all, err
	}
	err = r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		all, err = temporariesOf(ctx, t, `WHERE app = ? AND ended = 0 ORDER BY ends, name, element`, app)
		return err
	}, app)
	return all, err
}

// itself is the author of what nobody does.
var itself = audit.Person{ID: "weir-admin", Name: "weir-admin"}

// EndDue ends the temporary changes whose time is over, each once, however many processes call it, and returns those
// that it has ended. One that cannot be ended, because the record would not hold what was there before, is tried again
// a minute later.
func (r *Record) EndDue(ctx context.Context) (ended []Temporary, err error) {
	var due []Temporary
	if err := r.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		due, err = temporariesOf(ctx, t, `WHERE ended = 0 AND due <= ? ORDER BY due LIMIT ?`, r.now().UnixMicro(), dueAtOnce)
		return err
	}); err != nil {
		return nil, err
	}
	for _, t := range due {
		outcome, err := r.Change(ctx, Change{
			App: t.App, By: itself, Action: "end", Key: t.Key, Force: true, Back: true,
			Reason: "its time is over" + cut("; "+t.By.Name+" gave the reason: "+t.Reason, audit.MaxReason/2),
			Edits:  []Edit{{Name: t.Name, End: []string{t.Key}, Due: true}},
		})
		switch {
		case err == nil:
			ended = append(ended, outcome.Ended...)
		case errors.As(err, new(*sqldb.UnavailableError)), errors.Is(err, sqldb.ErrUnknown):
			return ended, err
		default:
			if err := r.notEnded(ctx, t, err); err != nil {
				return ended, err
			}
		}
	}
	return ended, nil
}

// notEnded notes why a temporary change was not ended.
func (r *Record) notEnded(ctx context.Context, t Temporary, why error) error {
	reason := cut(why.Error(), audit.MaxReason)
	if of := new(InvalidError); errors.As(why, &of) && of.App != "" && of.App != t.App { // those who see this app may not know that one
		reason = cut(fmt.Sprintf("the document of another app that uses it: %v", of.Err), audit.MaxReason)
	}
	return r.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		at := r.now()
		n, err := c.Exec(ctx, `UPDATE weir_temporary SET due = ?, why = ? WHERE app = ? AND name = ? AND element = ? AND ended = 0
			AND due <= ?`, at.Add(tryAgain).UnixMicro(), reason, t.App, t.Name, element(t.Key), at.UnixMicro())
		if err != nil || n == 0 || t.Why != "" { // it is over, or the audit has it
			return err
		}
		return r.log.Append(ctx, c, audit.Row{
			At: at, By: itself, App: t.App, Policy: t.Name, Action: "end", Key: t.Key, Outcome: audit.Refused, Reason: reason,
		})
	})
}

// cut returns a text of at most so many bytes.
func cut(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
