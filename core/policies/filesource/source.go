package filesource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
)

// Options are for [New]. The zero value is right where the file must be there.
type Options struct {
	// Missing lets the program start without the file: all is as the code says until there is one. It is for a file that
	// somebody writes in an emergency. When it is gone again, what it said still holds; to take it back, write a file
	// with "policies: {}".
	Missing bool
	// Log receives a line when other policies are taken up, one for each error of the file, and one with the names of
	// policies that no Guard or Limiter has. nil means slog.Default().
	Log *slog.Logger
}

// Source follows a file of policies: it is an [follow.Source] for Config.Source of a Guard and Options.Source of a
// Limiter. Build it by [New], and end it by Close. It is safe for concurrent use.
//
// It looks at the file each second. A file that has just been written is taken up when it has been the same at two
// looks, so that a writer in the middle of it is waited for; rename a finished file to its place to be sure. Symbolic
// links are followed, those of a ConfigMap of Kubernetes included. While the file is gone, cannot be read or has
// mistakes, the policies from before hold.
type Source struct {
	path    string
	missing bool
	log     *slog.Logger

	set    atomic.Pointer[follow.Set]
	status atomic.Pointer[Status]

	mu        sync.Mutex // held while a Set is prepared and shown
	followers []*follow.Follower

	reload chan chan<- error
	end    chan struct{}
	ending sync.Once
	ended  chan struct{}

	// Of the goroutine of follow.
	seen   seen
	used   [sha256.Size]byte // the digest of the file in use
	logged string            // the error that was logged last
	fresh  []string          // the policies that were taken up and that spell has not compared, sorted
}

// Status describes the file of a [Source].
type Status struct {
	// Revision is that of the Set in use, the first digits of the file's SHA-256; "" while there is none.
	Revision string
	// Policies is the number of policies in the Set in use.
	Policies int
	// Since is the time when they were taken up.
	Since time.Time
	// Err is the reason why the file as it is now is not in use, and nil if it is.
	Err error
	// Lagging is the time since which there is an Err, and zero while there is none.
	Lagging time.Time
}

// seen is the file at the last look.
type seen struct {
	info    fs.FileInfo // nil if it has to be read again
	digest  [sha256.Size]byte
	young   bool // it might change without a trace in info
	waiting bool // digest is not in use: the next look decides
}

const (
	interval = time.Second
	// youngFor is longer than the steps in which any file system notes times.
	youngFor = 2 * time.Second
)

// New reads the file and returns a Source that follows it. A file that cannot be used is an error: [policies.Mistakes]
// with all there are.
func New(path string, o Options) (*Source, error) {
	s := &Source{
		path: path, missing: o.Missing, log: o.Log,
		reload: make(chan chan<- error), end: make(chan struct{}), ended: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.status.Store(&Status{})
	if err := s.look(true); err != nil {
		return nil, fmt.Errorf("filesource: %w", err)
	}
	go s.follow()
	return s, nil
}

// Load returns the Set of the file in use, and nil while there is none.
func (s *Source) Load() *follow.Set { return s.set.Load() }

// maxFollowers bounds those for which a Set is prepared before it is shown. Further ones prepare it by the first request
// that sees it.
const maxFollowers = 1000

// Listen implements [follow.Listener].
func (s *Source) Listen(f *follow.Follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.set.Load()
	if len(s.followers) == maxFollowers {
		s.prepare(set) // some may be gone
	}
	if len(s.followers) == maxFollowers {
		return
	}
	if _, alive := f.Prepare(set); alive {
		s.followers = append(s.followers, f)
	}
}

// prepare prepares a Set for all that follow, and forgets those that are gone. s.mu is held.
func (s *Source) prepare(set *follow.Set) {
	s.followers = slices.DeleteFunc(s.followers, func(f *follow.Follower) bool {
		_, alive := f.Prepare(set)
		return !alive
	})
}

// show prepares a Set, and lets requests go by it.
func (s *Source) show(set *follow.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepare(set)
	s.set.Store(set)
}

// Status returns what is known of the file.
func (s *Source) Status() Status { return *s.status.Load() }

// Lag implements [follow.Lagger].
func (s *Source) Lag() (since time.Time, why string) {
	status := s.Status()
	if status.Err == nil {
		return time.Time{}, ""
	}
	return status.Lagging, status.Err.Error()
}

// Reload reads the file at once, and returns why it cannot be used, or nil.
func (s *Source) Reload(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case s.reload <- answer:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ended:
		return errors.New("filesource: the Source is closed")
	}
	select {
	case err := <-answer:
		if err != nil {
			return fmt.Errorf("filesource: %w", err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the Source: its last Set stays in use. It returns when the file is not looked at any more.
func (s *Source) Close() error {
	s.ending.Do(func() { close(s.end) })
	<-s.ended
	return nil
}

// follow looks at the file until Close.
func (s *Source) follow() {
	defer close(s.ended)
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			s.spell()
			s.report(s.look(false))
		case answer := <-s.reload:
			err := s.look(true)
			s.report(err)
			answer <- err
		case <-s.end:
			return
		}
	}
}

// report logs an error of the file, once for as long as it is the same.
func (s *Source) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != s.logged {
		s.log.Error("the file of policies cannot be used; those from before hold", "path", s.path, "error", text)
	}
	s.logged = text
}

// look reads the file if it has changed, or in any case if it is to be taken up at once. It returns why the file cannot
// be used.
func (s *Source) look(atOnce bool) error {
	data, err := s.changed(atOnce)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.missing && s.set.Load() == nil:
		s.seen = seen{}
		return nil
	case err != nil:
		s.seen = seen{}
		return s.refuse(err)
	case data == nil:
		return s.Status().Err
	}
	d, err := Parse(data)
	if err != nil {
		var mistakes policies.Mistakes
		if errors.As(err, &mistakes) {
			err = mistakes.In(s.path)
		}
		return s.refuse(err)
	}
	s.take(d)
	return nil
}

// changed returns what the file has, if that is not in use and was not refused before, and nil otherwise.
func (s *Source) changed(atOnce bool) ([]byte, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe might never return
		return nil, fmt.Errorf("%s is not a regular file, but has the mode %v; give the name of a file", s.path, info.Mode())
	}
	last := s.seen
	same := last.info != nil && os.SameFile(last.info, info) && last.info.Size() == info.Size() && last.info.ModTime().Equal(info.ModTime())
	if same && !last.young && !atOnce {
		return nil, nil
	}
	data, err := read(s.path)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(data)
	s.seen = seen{info: info, digest: digest, young: time.Since(info.ModTime()) < youngFor}
	known := last.info != nil && last.digest == digest
	switch {
	case known && !last.waiting && !atOnce:
		return nil, nil
	case s.seen.young && !known && !atOnce:
		s.seen.waiting = true
		return nil, nil
	}
	return data, nil
}

// read returns what a file has, or its first bytes, which are too many.
func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, MaxSize+1))
}

// refuse notes why the file cannot be used.
func (s *Source) refuse(err error) error {
	status := s.Status()
	if status.Err == nil {
		status.Lagging = time.Now()
	}
	status.Err = err
	s.status.Store(&status)
	return err
}

// take shows the policies of a document.
func (s *Source) take(d *policies.Document) {
	if s.seen.digest == s.used { // it was read again, or an error is over
		status := s.Status()
		status.Err, status.Lagging = nil, time.Time{}
		s.status.Store(&status)
		return
	}
	s.used = s.seen.digest
	set := d.Set()
	set.Revision = hex.EncodeToString(s.used[:4])
	s.show(set)
	s.status.Store(&Status{Revision: set.Revision, Policies: len(d.Policies), Since: time.Now()})
	s.log.Info("policies were taken up from the file", "path", s.path, "revision", set.Revision, "policies", len(d.Policies))
	s.fresh = slices.Sorted(maps.Keys(d.Policies))
}

// maxUnused is the number of names that a line of the log has.
const maxUnused = 10

// spell logs which of the policies that were taken up nobody has who follows, as soon as somebody does: New reads the
// file before there are Guards.
func (s *Source) spell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fresh) == 0 || len(s.followers) == 0 {
		return
	}
	has := map[string]bool{}
	for _, f := range s.followers {
		for _, r := range f.Rules() {
			has[r.Policy] = true
		}
	}
	unused := slices.DeleteFunc(s.fresh, func(name string) bool { return has[name] })
	s.fresh = nil
	if len(unused) == 0 || len(s.followers) == maxFollowers { // there may be further ones
		return
	}
	s.log.Warn("so far no rule of this program has a policy of these names; look at the spelling, unless they are for another program",
		"path", s.path, "names", unused[:min(len(unused), maxUnused)], "of", len(unused))
}
