package counts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
)

// DefaultPrefix is that of a program whose redisstore.Options have none.
const DefaultPrefix = "weir"

// patience bounds the time that Redis may take for all counts of a key: a person waits.
const patience = 1500 * time.Millisecond

// Options are the options of [New].
type Options struct {
	// Redis is the client of the Redis in which services count, with ContextTimeoutEnabled. nil if there is none.
	Redis redis.UniversalClient
	// Prefix is that of rules of which it is not known; "" means DefaultPrefix.
	Prefix string
	// Places are those prefixes of which something is different.
	Places map[string]Place
	// Process is the store of a program that runs in this process, for which services announce that they count in the
	// process. nil if there is none: nobody can look into other processes.
	Process core.Store
	// Now forces the clock of all stores, in microseconds since the epoch, for tests. 0 means the clocks of the stores.
	Now int64
}

// Place is a place of counts.
type Place struct {
	// Redis is the client; nil means Options.Redis.
	Redis redis.UniversalClient
	// SecretFile has the secret by which the service hashes its keys, less a newline at its end; "" if it does not.
	SecretFile string
}

// Stores are the places in which services keep their counts. It is safe for concurrent use.
type Stores struct {
	o       Options
	secrets map[string][]byte                       // by prefix
	places  map[redis.UniversalClient]chan struct{} // of reads at a time: they share the connections of a client

	mu     sync.Mutex
	opened map[opened]*redisstore.Store // at most maxOpened
}

// opened is a store that was opened.
type opened struct {
	prefix string
	keys   form
}

// form is the form in which a store is given its keys.
type form uint8

const (
	readable form = iota
	hashing       // the store hashes them with the secret
	scored        // they are as redisstore.Store.ScoreKey returns them
)

// aHash matches the text that stands for a key in announcements of services that hash their keys, and for a long one.
var aHash = regexp.MustCompile(`^~[A-Za-z0-9_-]{43}$`)

// maxReads bounds the reads that are under way at a time to one Redis: some more than the connections that a client of
// go-redis has for each processor, so that none is idle.
const maxReads = 16

// maxOpened bounds the stores that are kept. Any process can announce any prefix, and one that is not kept is opened again.
const maxOpened = 100

// store is a store that can be looked into.
type store interface {
	core.Store
	core.StateStore
}

// New returns the places of counts. It reads the secrets, and fails if one of them is missing or too short.
func New(o Options) (*Stores, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	s := &Stores{o: o, secrets: map[string][]byte{}, places: map[redis.UniversalClient]chan struct{}{}, opened: map[opened]*redisstore.Store{}}
	s.places[nil], s.places[o.Redis] = make(chan struct{}, maxReads), make(chan struct{}, maxReads)
	var wrong []error
	for prefix, place := range o.Places {
		s.places[s.client(prefix)] = make(chan struct{}, maxReads)
		if place.SecretFile == "" {
			continue
		}
		secret, err := os.ReadFile(place.SecretFile)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("counts: the secret of the prefix %q: %w", prefix, err))
			continue
		}
		s.secrets[prefix] = bytes.TrimSuffix(bytes.TrimSuffix(secret, []byte("\n")), []byte("\r"))
		if s.client(prefix) == nil {
			continue
		}
		if _, err := s.open(Where{Prefix: prefix, Hashed: true}, "typed"); err != nil {
			wrong = append(wrong, err)
		}
	}
	if o.Redis != nil {
		if _, err := s.open(Where{Prefix: o.Prefix}, "typed"); err != nil {
			wrong = append(wrong, err)
		}
	}
	return s, errors.Join(wrong...)
}

func (s *Stores) client(prefix string) redis.UniversalClient {
	if own := s.o.Places[prefix].Redis; own != nil {
		return own
	}
	return s.o.Redis
}

// open returns the store of a place for a key, or an error that says why nobody can look into it.
func (s *Stores) open(w Where, key string) (store, error) {
	if w.Process {
		if own, ok := s.o.Process.(store); ok {
			return own, nil
		}
		return nil, errors.New("the services count in their processes, without Redis, where nobody else can look")
	}
	if w.Prefix == "" { // nobody has said how its keys are kept, but for whoever has given a secret
		w.Prefix = s.o.Prefix
		w.Hashed = s.secrets[w.Prefix] != nil
	}
	client := s.client(w.Prefix)
	if client == nil {
		return nil, errors.New("this server was started without the Redis in which the services count")
	}
	o := redisstore.Options{Prefix: w.Prefix, DenyCache: -1, Deadline: patience}
	id := opened{prefix: w.Prefix}
	switch secret := s.secrets[w.Prefix]; {
	case aHash.MatchString(key):
		id.keys, o.ScoreKeys = scored, true
	case w.Hashed && secret == nil:
		return nil, fmt.Errorf("the services hash the keys under the prefix %q with a secret that this server does not have; "+
			"start it with the file of the secret", w.Prefix)
	case w.Hashed:
		id.keys, o.HashKeys = hashing, secret
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.opened[id]; known != nil {
		return known, nil
	}
	opening, err := redisstore.New(client, o)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "redisstore: ", ""))
	}
	for other := range s.opened { // any: each is quickly opened again
		if len(s.opened) < maxOpened {
			break
		}
		delete(s.opened, other)
	}
	s.opened[id] = opening
	return opening, nil
}

// unreadable returns why counts could not be read, for people. A text in which the key could stand is left out.
func unreadable(err error, key string) error {
	var failed *core.StoreError
	switch {
	case errors.As(err, &failed) && strings.Contains(failed.Error(), key):
		return fmt.Errorf("the store in which the services count does not answer (%s)", failed.Class)
	case errors.As(err, &failed):
		return fmt.Errorf("the store in which the services count does not answer: %w", failed.Err)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the store in which the services count has not answered in time")
	case strings.Contains(err.Error(), key):
		return errors.New("the counts could not be read")
	}
	return err
}
