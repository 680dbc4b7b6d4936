package redissource

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/policies"
)

// poll reads the bridge, and then the document whenever it is due: in intervals, when notified, and after a failure. It
// also announces the process. It ends with ctx.
func (s *Source) poll(ctx context.Context) {
	s.cross(ctx) // before Redis, which may not answer
	var (
		failures int
		read     time.Time // the latest, at its beginning
		next     = time.Now()
		announce = next.Add(rand.N(2*s.pace.soon + 1))
		timer    = time.NewTimer(0)
	)
	defer timer.Stop()
	for {
		now := time.Now()
		if !now.Before(next) {
			read = now
			if s.refresh(ctx) {
				failures, next = 0, now.Add(s.pace.read-s.pace.spread+rand.N(2*s.pace.spread+1))
			} else {
				failures++
				next = time.Now().Add(s.pause(failures))
			}
		}
		if now = time.Now(); failures == 0 && !s.o.Silent && !now.Before(announce) {
			s.announce(ctx)
			announce = now.Add(s.pace.announce)
		}
		until := next
		if failures == 0 && !s.o.Silent && announce.Before(until) {
			until = announce
		}
		timer.Reset(time.Until(until))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
			failures = 0
			if next = time.Now(); next.Before(read.Add(s.pace.merge)) {
				next = read.Add(s.pace.merge)
			}
		case <-s.changed: // soon, and not all processes of a fleet at once
			if soon := time.Now().Add(s.pace.soon + rand.N(s.pace.soon+1)); soon.Before(announce) {
				announce = soon
			}
		}
	}
}

// pause returns the pause after so many failures in a row: twice as long each time, and up to a fifth less.
func (s *Source) pause(failures int) time.Duration {
	d := s.pace.longest
	if failures < 16 {
		d = min(d, s.pace.retry<<(failures-1))
	}
	return d - rand.N(d/5+1)
}

// answer has the contents of the hash.
type answer struct {
	there    bool // false if there is no hash
	head     head
	document *policies.Document // nil unless it is later than the one in use
	data     string             // of document
}

// unusableError is the error of contents that cannot be used. They are an answer all the same.
type unusableError struct{ error }

// refresh reads what Redis has, and takes it up if it is later than what is in use. It reports whether Redis answered.
func (s *Source) refresh(ctx context.Context) bool {
	deadline, cancel := context.WithTimeout(ctx, s.pace.deadline)
	defer cancel()
	a, err := s.ask(deadline)
	var bad unusableError
	answered := err == nil || errors.As(err, &bad)
	if !answered && ctx.Err() != nil {
		return false // Close is not trouble
	}
	s.mu.Lock()
	now := time.Now()
	before := s.held
	switch {
	case bad.error != nil:
		s.held.unusable(bad.error)
	case err != nil:
		s.held.failed(err)
	case !a.there:
		s.held.absent(now)
	case a.document != nil && s.held.compare(a.head) == later: // still: the bridge may have come meanwhile
		s.unkept = &a
		s.held.taken(a.document, a.head.digest)
		s.held.confirm(now, a.head)
		s.show(a.document)
	default:
		s.held.confirm(now, a.head)
	}
	after := s.held
	s.mu.Unlock()
	s.say(&before, &after)
	s.keep()
	return answered
}

// say logs what has changed by a read, and lets the inventory know.
func (s *Source) say(before, after *held) {
	switch {
	case after.unread != "":
		s.log.trouble("unread", "the document in Redis cannot be used; what is in use stays", after.unread)
	case after.trouble != "":
		s.log.trouble("trouble", "the policies in Redis cannot be followed; what is in use stays", after.trouble)
	case before.trouble != "":
		s.log.over()
	}
	if (before.trouble != "") != (after.trouble != "") || (before.unread != "") != (after.unread != "") {
		signal(s.changed)
	}
}

// ask reads the document if it is later than the one in use, and otherwise as little as says so.
func (s *Source) ask(ctx context.Context) (answer, error) {
	key := Key(s.app)
	pipe := s.rdb.Pipeline()
	fields := pipe.HMGet(ctx, key, headFields[:]...)
	size := pipe.HStrLen(ctx, key, FieldDocument)
	if _, err := pipe.Exec(ctx); err != nil {
		return answer{}, wrongType(err)
	}
	a := answer{there: true}
	var err error
	switch a.head, err = parseHead(fields.Val()); {
	case errors.Is(err, errNothing) && size.Val() == 0:
		return answer{}, nil
	case err != nil:
		return answer{}, unusableError{err}
	case s.compare(a.head) != later:
		return a, nil
	case size.Val() > policies.MaxSize:
		return answer{}, unusableError{tooLarge(a.head, size.Val())}
	}
	// By one command, so that nobody ever sees two documents mixed.
	all, err := s.rdb.HMGet(ctx, key, append(headFields[:], FieldDocument)...).Result()
	if err != nil {
		return answer{}, wrongType(err)
	}
	switch a.head, err = parseHead(all); {
	case errors.Is(err, errNothing) && all[len(headFields)] == nil:
		return answer{}, nil
	case err != nil:
		return answer{}, unusableError{err}
	case s.compare(a.head) != later:
		return a, nil
	}
	a.data, _ = all[len(headFields)].(string)
	if a.document, err = decode(s.app, a.head, a.data); err != nil {
		return answer{}, unusableError{err}
	}
	return a, nil
}

func (s *Source) compare(h head) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.compare(h)
}

// wrongType is an unusableError where something else than a hash has the name of the document, and err otherwise.
func wrongType(err error) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return unusableError{errors.New("the key is not a hash; only weir-admin may write it")}
	}
	return err
}
