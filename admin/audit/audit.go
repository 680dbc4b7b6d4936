package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/admin/internal/sqldb"
)

// Bounds of a row.
const (
	MaxReason = 1 << 10 // bytes
	MaxDetail = 4 << 10 // bytes
	maxLine   = 255     // characters of a person and their name
	maxName   = 64      // bytes of an app, a policy, an action and an outcome
	maxKey    = 1 << 10 // bytes
)

// Person is a person as they were known when they did something.
type Person struct {
	ID   string
	Name string // as shown
}

// The outcomes of what somebody wanted to do.
const (
	Done    = "done"
	Refused = "refused" // the person did not have the right
	unknown = "unknown" // the database has not answered; only in Options.Lines
)

// Row is one thing that somebody has done, or wanted to do.
type Row struct {
	Seq       int64 // from 1 on
	At        time.Time
	By        Person
	App       string // "" if it concerns none, such as a token
	Policy    string // "" if it concerns none, or several
	Action    string
	Reason    string
	Revision  int64 // the number of the change, or 0
	Was       int64 // the revision of the policy before, or 0
	Forced    bool
	Emergency bool
	Key       string // "" if it concerns none, or its text is forgotten
	Mark      string // what the chain has in place of the key
	Detail    string // a short object of JSON, or ""; without keys, which could not be forgotten
	Outcome   string // Done or Refused
	Hash      string // of the row and those before, in hexadecimal digits

	// SeenBy and SeenAt are those of the first person who has looked at an emergency.
	SeenBy Person
	SeenAt time.Time
}

// Options are those of New.
type Options struct {
	// Lines receives each row that is written, without the text of its key, as a line of JSON. It should keep them where
	// those who can write to the database cannot.
	Lines io.Writer
	// Log receives what goes wrong meanwhile. Nil is slog.Default.
	Log *slog.Logger
	// Now is the clock. Nil is time.Now.
	Now func() time.Time
}

// Log is the audit in a database. It is safe for concurrent use, and several processes may use one database.
type Log struct {
	db  *sqldb.DB
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex // of lines
	lines io.Writer

	refused refused
	minute  time.Duration // after which refused attempts are written
}

// New returns the audit in a database. Close writes what is left.
func New(db *sqldb.DB, o Options) *Log {
	l := &Log{db: db, log: cmp.Or(o.Log, slog.Default()), now: o.Now, lines: o.Lines, minute: time.Minute}
	if l.now == nil {
		l.now = time.Now
	}
	return l
}

// Now returns the time by the clock of the audit, which its writers share.
func (l *Log) Now() time.Time { return l.now() }

// Append adds a row as a part of a change: both are written, or none of them. Seq and Hash are found, and At, if it is
// zero, is now. An empty Outcome is Done. Control characters in texts are replaced, and what is too long is cut.
func (l *Log) Append(ctx context.Context, c *sqldb.Change, r Row) error {
	if r.At.IsZero() {
		r.At = l.now()
	}
	r.At = r.At.UTC().Truncate(time.Microsecond)
	r.Outcome = cmp.Or(r.Outcome, Done)
	for _, name := range []string{r.App, r.Policy, r.Action, r.Outcome} {
		if !isName(name) {
			return fmt.Errorf("audit: found the name %.100q; give a word of at most %d characters of ASCII", name, maxName)
		}
	}
	if r.Detail != "" && (len(r.Detail) > MaxDetail || !json.Valid([]byte(r.Detail))) {
		return fmt.Errorf("audit: found %d bytes of detail; give JSON of at most %d", len(r.Detail), MaxDetail)
	}
	r.By = Person{line(r.By.ID, maxLine), line(r.By.Name, maxLine)}
	r.Reason = line(r.Reason, MaxReason)
	r.Seq, r.Mark = c.End.Seq+1, ""
	if r.Key != "" {
		if err := keep(ctx, c, &r); err != nil {
			return err
		}
	}
	hash, err := r.link(c.End.Hash)
	if err != nil {
		return err
	}
	r.Hash = hash
	if _, err := c.Exec(ctx, `INSERT INTO weir_audit (seq, at, person, name, app, policy, action, reason, revision, was,
		forced, emergency, mark, detail, outcome, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.Seq, r.At.UnixMicro(), r.By.ID, r.By.Name, r.App, r.Policy, r.Action, r.Reason, r.Revision, r.Was,
		bit(r.Forced), bit(r.Emergency), r.Mark, r.Detail, r.Outcome, r.Hash); err != nil {
		return err
	}
	if r.Emergency {
		const unseen = `INSERT INTO weir_emergencies (seq, at, person, name) VALUES (?, 0, '', '')`
		if _, err := c.Exec(ctx, unseen, r.Seq); err != nil {
			return err
		}
	}
	c.End = sqldb.Link{Seq: r.Seq, Hash: r.Hash}
	c.After(func(err error) { l.line(r, err) })
	return nil
}

// Write adds a row for what is no change of the database.
func (l *Log) Write(ctx context.Context, r Row) error {
	return l.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error { return l.Append(ctx, c, r) })
}

// ErrNoEmergency reports a number that is that of no emergency.
var ErrNoEmergency = errors.New("audit: there is no emergency of this number")

// Seen marks an emergency as looked at by a person, and adds a row, if permit returns nil for the row of the emergency. It
// is called within the change's transaction, so that rights which were lost before are none. An emergency that somebody
// has looked at already is left as it is.
func (l *Log) Seen(ctx context.Context, seq int64, by Person, reason string, permit func(context.Context, sqldb.Tx, Row) error) error {
	return l.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		of := Filter{Emergency: true, Before: seq + 1, Limit: 1}
		rows, err := of.read(ctx, c.Tx, seq-1)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return ErrNoEmergency
		}
		row := rows[0]
		if err := permit(ctx, c.Tx, row); err != nil || !row.SeenAt.IsZero() {
			return err
		}
		if _, err := c.Exec(ctx, `UPDATE weir_emergencies SET at = ?, person = ?, name = ? WHERE seq = ?`,
			l.now().UnixMicro(), line(by.ID, maxLine), line(by.Name, maxLine), seq); err != nil {
			return err
		}
		return l.Append(ctx, c, Row{By: by, App: row.App, Policy: row.Policy, Action: "seen", Reason: reason})
	})
}

// Close writes what is left of the refused attempts.
func (l *Log) Close() error { return l.refused.close(l) }

// jsonLine is a row in Options.Lines.
type jsonLine struct {
	Seq       int64           `json:"audit"`
	At        time.Time       `json:"at"`
	Person    string          `json:"person"`
	Name      string          `json:"name,omitempty"`
	App       string          `json:"app,omitempty"`
	Policy    string          `json:"policy,omitempty"`
	Action    string          `json:"action"`
	Reason    string          `json:"reason,omitempty"`
	Revision  int64           `json:"revision,omitempty"`
	Was       int64           `json:"was,omitempty"`
	Forced    bool            `json:"forced,omitempty"`
	Emergency bool            `json:"emergency,omitempty"`
	Mark      string          `json:"mark,omitempty"`
	Detail    json.RawMessage `json:"detail,omitempty"`
	Outcome   string          `json:"outcome"`
	Hash      string          `json:"hash"`
}

// line writes a row to Options.Lines, after its change.
func (l *Log) line(r Row, failed error) {
	if l.lines == nil {
		return
	}
	if failed != nil {
		r.Outcome = unknown
	}
	text, err := json.Marshal(jsonLine{
		r.Seq, r.At, r.By.ID, r.By.Name, r.App, r.Policy, r.Action, r.Reason, r.Revision, r.Was, r.Forced, r.Emergency,
		r.Mark, json.RawMessage(r.Detail), r.Outcome, r.Hash,
	})
	if err == nil {
		l.mu.Lock()
		_, err = l.lines.Write(append(text, '\n'))
		l.mu.Unlock()
	}
	if err != nil {
		l.log.Error("weir-admin: a row of the audit is in the database, but not in the lines", "seq", r.Seq, "error", err)
	}
}

// line returns a text without control characters, of at most so many characters.
func line(s string, characters int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	for i := range s {
		if characters == 0 {
			return s[:i]
		}
		characters--
	}
	return s
}

// isName reports whether a text can be the name of an app, a policy, an action or an outcome, or "".
func isName(s string) bool {
	return len(s) <= maxName && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

// bit returns a boolean as all databases have it.
func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
