package redissource

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
)

// MaxProcesses is the number of processes of an app that are in its inventory. One more takes the place of the one that
// was not heard of for the longest time.
const MaxProcesses = 1000

// newID returns the id of a process.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // which never fails
	return hex.EncodeToString(b[:])
}

// announce writes into the inventory what this process obeys. The clock of the process decides nothing but which one
// leaves an inventory that is full.
func (s *Source) announce(ctx context.Context) {
	data := s.process().Encode()
	var usage []byte
	if s.o.Usage != nil {
		usage = policies.EncodeUsage(s.usage())
	}
	ctx, cancel := context.WithTimeout(ctx, s.pace.deadline)
	defer cancel()
	key, index := ProcessKey(s.app, s.id), ProcessIndex(s.app)
	pipe := s.rdb.Pipeline()
	pipe.Set(ctx, key, data, s.pace.expire)
	if usage != nil {
		pipe.Set(ctx, UsageKey(s.app, s.id), usage, s.pace.expire)
	}
	pipe.ZAdd(ctx, index, redis.Z{Score: float64(time.Now().Unix()), Member: s.id})
	pipe.ZRemRangeByRank(ctx, index, 0, -MaxProcesses-1)
	pipe.Expire(ctx, index, max(2*s.pace.expire, time.Second))
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, context.Canceled) {
		s.log.warn("inventory", "this process cannot be announced; it obeys all the same", err)
	}
}

// process returns what is announced.
func (s *Source) process() *policies.Process {
	st := s.Status()
	p := &policies.Process{
		App: s.app, ID: s.id, Name: s.o.Name, Started: s.started, Weir: weirVersion(),
		Version: st.Version, Digest: st.Digest, Meaning: st.Meaning, Why: st.Why, Rules: st.Rules, Omitted: st.Unlisted,
	}
	if p.Name == "" {
		p.Name = processName()
	}
	return p
}

// usage returns what is announced of the counts.
func (s *Source) usage() *stats.Usage {
	u := s.o.Usage()
	s.mu.Lock()
	defer s.mu.Unlock()
	u = s.followers.Usage(u)
	return &u
}

// processName returns the name of the host and the process id.
var processName = sync.OnceValue(func() string {
	host, _ := os.Hostname() // "" does, beside the id
	return host + ":" + strconv.Itoa(os.Getpid())
})

// weirVersion returns the version of weir that the program was built with, or "".
var weirVersion = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	const path = "github.com/weir-go/weir"
	if info.Main.Path == path {
		return info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
})

// Processes returns what the processes of an app have announced, those first that were heard of last, and the number of
// announcements that cannot be read. What it returns is untrusted: any program with the rights of a service of the app
// can write anything there, and so whatever shows it must quote it.
func Processes(ctx context.Context, rdb redis.UniversalClient, app string) (all []*policies.Process, unreadable int, err error) {
	var gone []any
	err = announced(ctx, rdb, app, ProcessKey, policies.MaxProcessSize, func(id string, data []byte, err error) {
		if err == nil && len(data) == 0 {
			gone = append(gone, id)
			return
		}
		p, err := policies.DecodeProcess(data)
		if err != nil || p.App != app || p.ID != id {
			unreadable++
			return
		}
		all = append(all, p)
	})
	if err != nil {
		return nil, 0, err
	}
	if len(gone) > 0 {
		_ = rdb.ZRem(ctx, ProcessIndex(app), gone...).Err() // else the next reader does
	}
	return all, unreadable, nil
}

// Usages calls f with what each process of an app has counted, by its id, or with the reason why that cannot be read.
// Those that do not announce it are left out. It is untrusted, as what [Processes] returns. Of a thousand processes there
// may be 64 MiB, of which 3 are in memory at a time.
func Usages(ctx context.Context, rdb redis.UniversalClient, app string, f func(id string, u *stats.Usage, err error)) error {
	return announced(ctx, rdb, app, UsageKey, policies.MaxUsageSize, func(id string, data []byte, err error) {
		if err == nil && len(data) == 0 {
			return
		}
		var u *stats.Usage
		if err == nil {
			u, err = policies.DecodeUsage(data)
		}
		f(id, u, err)
	})
}

// announced calls f with a value of each process of an app: "" if there is none, a byte more than the size if it is larger.
func announced(
	ctx context.Context, rdb redis.UniversalClient, app string, key func(app, id string) string, size int64,
	f func(id string, data []byte, err error),
) error {
	if err := policies.CheckApp(app); err != nil {
		return fmt.Errorf("redissource: %w", err)
	}
	index := ProcessIndex(app)
	ids, err := rdb.ZRevRange(ctx, index, 0, MaxProcesses-1).Result()
	if err != nil {
		return fmt.Errorf("redissource: reading %s: %w", index, err)
	}
	for len(ids) > 0 {
		some := ids[:min(len(ids), 50)]
		ids = ids[len(some):]
		pipe := rdb.Pipeline()
		texts := make([]*redis.StringCmd, len(some))
		for i, id := range some {
			texts[i] = pipe.GetRange(ctx, key(app, id), 0, size)
		}
		var bad unusableError // of one process
		if _, err := pipe.Exec(ctx); err != nil && !errors.As(wrongType(err), &bad) {
			return fmt.Errorf("redissource: reading the processes of %q: %w", app, err)
		}
		for i, text := range texts {
			data, err := text.Bytes()
			f(some[i], data, err)
		}
	}
	return nil
}
