package people

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/admin/internal/sqldb"
)

// How old what is known may be.
const (
	fresh   = time.Second             // then one request looks whether anything has changed
	current = 1500 * time.Millisecond // then all wait for that
	within  = 3 * time.Second         // in which the database must answer
	again   = time.Second             // after it has not, until it is asked again
)

// state has all that decides who somebody is and which rights they have, as the database was at one moment.
type state struct {
	read    time.Time // when reading began
	changes int64     // in the database
	here    int64     // of this process, before it was read

	people   map[string]*person
	tokens   map[string]*token // by the sum of the secret, as are links and sessions
	links    map[string]*link
	sessions map[string]*session
}

// failure is that of the last attempt to read.
type failure struct {
	at  time.Time
	err error
}

// sum returns the text under which a secret is kept.
func sum(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}

// state returns what is known, read again if it is old. The error is an *[sqldb.UnavailableError].
func (p *People) state(ctx context.Context) (*state, error) {
	now := time.Now()
	return p.since(ctx, now.Add(-fresh), now.Add(-current))
}

// newest is state for a request with something that is not known, which another process may just have made. It costs a
// query for one number, and however many come at once, one does it for all.
func (p *People) newest(ctx context.Context) (*state, error) {
	now := time.Now()
	return p.since(ctx, now, now)
}

// since returns what is known, read again by one request if it was read before a time, for which the others wait if it
// was read before another.
func (p *People) since(ctx context.Context, fresh, current time.Time) (*state, error) {
	s := p.known.Load()
	if p.young(s, fresh) {
		return s, nil
	}
	select {
	case p.reading <- struct{}{}:
	default:
		if p.young(s, current) {
			return s, nil
		}
		select {
		case p.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, &sqldb.UnavailableError{Err: ctx.Err()}
		}
	}
	defer func() { <-p.reading }()
	s = p.known.Load()
	if p.young(s, fresh) {
		return s, nil // somebody else has read it
	}
	if f := p.failed.Load(); f != nil && time.Since(f.at) < again {
		return nil, f.err
	}
	now, err := p.read(ctx, s)
	if err != nil {
		if _, ok := errors.AsType[*sqldb.UnavailableError](err); !ok {
			err = &sqldb.UnavailableError{Err: err}
		}
		p.failed.Store(&failure{time.Now(), err})
		return nil, err
	}
	p.known.Store(now)
	return now, nil
}

// young reports whether a state was read after a time, and holds all changes of this process.
func (p *People) young(s *state, after time.Time) bool {
	return s != nil && s.read.After(after) && s.here == p.changes.Load()
}

// read returns what is known now. It does not end with the request that needs it first.
func (p *People) read(ctx context.Context, before *state) (*state, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	s := &state{read: time.Now(), here: p.changes.Load()}
	err := p.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		if err := t.Row(ctx, `SELECT changes FROM weir_known WHERE id = 1`).Scan(&s.changes); err != nil {
			return err
		}
		if before != nil && before.changes == s.changes {
			s.people, s.tokens, s.links, s.sessions = before.people, before.tokens, before.links, before.sessions
			return nil
		}
		return s.all(ctx, t)
	})
	return s, err
}

// all reads everything.
func (s *state) all(ctx context.Context, t sqldb.Tx) error {
	s.people, s.tokens = map[string]*person{}, map[string]*token{}
	s.links, s.sessions = map[string]*link{}, map[string]*session{}
	err := t.Each(ctx, func(row sqldb.Row) error {
		one := &person{groups: map[string][]given{}}
		var seen int64
		err := row.Scan(&one.id, &one.name, &one.issuer, &seen, &one.barred)
		one.seen = moment(seen)
		s.people[one.id] = one
		return err
	}, `SELECT id, name, issuer, seen, barred FROM weir_people`)
	if err != nil {
		return err
	}
	err = t.Each(ctx, func(row sqldb.Row) error {
		g, id, err := scanGiven(row)
		one := s.people[id]
		if one == nil { // has a right, but was never seen
			one = &person{id: id}
			s.people[id] = one
		}
		one.own = append(one.own, g)
		return err
	}, `SELECT app, role, ends, subject FROM weir_grants WHERE kind = 'person'`)
	if err != nil {
		return err
	}
	groups := map[string][]given{}
	err = t.Each(ctx, func(row sqldb.Row) error {
		g, group, err := scanGiven(row)
		groups[group] = append(groups[group], g)
		return err
	}, `SELECT app, role, ends, subject FROM weir_grants WHERE kind = 'group'`)
	if err != nil {
		return err
	}
	err = t.Each(ctx, func(row sqldb.Row) error {
		var id, group string
		err := row.Scan(&id, &group)
		if one := s.people[id]; one != nil && groups[group] != nil {
			one.groups[group] = groups[group]
		}
		return err
	}, `SELECT person, name FROM weir_members`)
	if err != nil {
		return err
	}
	err = t.Each(ctx, func(row sqldb.Row) error {
		tok, hash, err := scanToken(row)
		s.tokens[hash] = tok
		return err
	}, selectToken)
	if err != nil {
		return err
	}
	err = t.Each(ctx, func(row sqldb.Row) error {
		var hash, person string
		var ends int64
		err := row.Scan(&hash, &person, &ends)
		s.links[hash] = &link{person, moment(ends)}
		return err
	}, `SELECT hash, person, ends FROM weir_links`)
	if err != nil {
		return err
	}
	return t.Each(ctx, func(row sqldb.Row) error {
		var hash, person string
		var began, seen int64
		err := row.Scan(&hash, &person, &began, &seen)
		one := &session{person: person, began: moment(began)}
		one.seen.Store(seen)
		s.sessions[hash] = one
		return err
	}, `SELECT hash, person, began, seen FROM weir_sessions`)
}

// session is that of a browser.
type session struct {
	person string
	began  time.Time
	seen   atomic.Int64 // in microseconds; written to the database now and then
}

// link is one that has not been used.
type link struct {
	person string
	ends   time.Time
}
