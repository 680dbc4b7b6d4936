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

	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/policies"
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
func (s *Source) usage() *enforce.Usage {
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

// Announcement has all that a process has announced. It is untrusted: any program with the rights of a service of the app can
// write anything there, and so whatever shows it must quote it.
type Announcement struct {
	*policies.Process
	// Usage has what it has counted, and is nil if it does not announce that, or if it cannot be read: then UsageErr is
	// the reason.
	Usage    *enforce.Usage
	UsageErr error
}

// Processes returns what the processes of an app have announced, those first that were heard of last, and the number of
// announcements that cannot be read. What it returns is untrusted, as in an [Announcement]. It leaves the Usage out.
func Processes(ctx context.Context, rdb redis.UniversalClient, app string) (all []*policies.Process, unreadable int, err error) {
	unreadable, err = announced(ctx, rdb, app, false, func(a Announcement) { all = append(all, a.Process) })
	if err != nil {
		return nil, 0, err
	}
	return all, unreadable, nil
}

// Announcements calls f with what each process of an app has announced, its Usage included, those first that were heard
// of last. It returns the number of announcements that cannot be read. Of a thousand processes it reads at most 96 MiB, 5
// MiB at a time: so that no more is in memory than f keeps.
func Announcements(ctx context.Context, rdb redis.UniversalClient, app string, f func(Announcement)) (unreadable int, err error) {
	return announced(ctx, rdb, app, true, f)
}

// announced reads announcements, with the Usage if that is asked for.
func announced(ctx context.Context, rdb redis.UniversalClient, app string, usage bool, f func(Announcement)) (unreadable int, err error) {
	if err := policies.CheckApp(app); err != nil {
		return 0, fmt.Errorf("redissource: %w", err)
	}
	index := ProcessIndex(app)
	ids, err := rdb.ZRevRange(ctx, index, 0, MaxProcesses-1).Result()
	if err != nil {
		return 0, fmt.Errorf("redissource: reading %s: %w", index, err)
	}
	var gone []any
	for len(ids) > 0 {
		some := ids[:min(len(ids), 50)]
		ids = ids[len(some):]
		pipe := rdb.Pipeline()
		texts, usages := make([]*redis.StringCmd, len(some)), make([]*redis.StringCmd, len(some))
		for i, id := range some { // a byte more than each may have
			texts[i] = pipe.GetRange(ctx, ProcessKey(app, id), 0, policies.MaxProcessSize)
			if usage {
				usages[i] = pipe.GetRange(ctx, UsageKey(app, id), 0, policies.MaxUsageSize)
			}
		}
		var bad unusableError // of one process
		if _, err := pipe.Exec(ctx); err != nil && !errors.As(wrongType(err), &bad) {
			return 0, fmt.Errorf("redissource: reading the processes of %q: %w", app, err)
		}
		for i, text := range texts {
			data, err := text.Bytes()
			if err == nil && len(data) == 0 {
				gone = append(gone, some[i])
				continue
			}
			p, err := policies.DecodeProcess(data)
			if err != nil || p.App != app || p.ID != some[i] {
				unreadable++
				continue
			}
			a := Announcement{Process: p}
			if usage {
				a.Usage, a.UsageErr = readUsage(usages[i])
			}
			f(a)
		}
	}
	if len(gone) > 0 {
		_ = rdb.ZRem(ctx, index, gone...).Err() // else the next reader does
	}
	return unreadable, nil
}

// readUsage returns the Usage that a command has read, or nil if there is none.
func readUsage(read *redis.StringCmd) (*enforce.Usage, error) {
	data, err := read.Bytes()
	if err != nil || len(data) == 0 {
		return nil, err
	}
	return policies.DecodeUsage(data)
}
