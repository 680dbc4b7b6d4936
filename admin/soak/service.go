package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/internal/hosttest"
)

// serviceEnv has the settings of a service, which is this program in a process of its own.
const serviceEnv = "WEIR_SOAK_SERVICE"

type settings struct {
	App, Addr, Bridge string
	Decides           bool // it only makes decisions, for "cost"
}

// report answers each line that a service reads.
type report struct {
	Version policies.Version
	Digest  string
	Meaning policies.Meaning
	Why     string
	Bridge  string
	// Fell is the first time that the service went back, or "".
	Fell string
}

// service follows an app until in ends.
func service(ctx context.Context, s settings, in io.Reader, out io.Writer) error {
	if s.Decides {
		return decider(ctx, s.Addr, in, out)
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DialTimeout: time.Second})
	defer rdb.Close()
	source, err := redissource.New(rdb, s.App, redissource.Options{Bridge: s.Bridge, Name: s.App})
	if err != nil {
		return err
	}
	defer source.Close()

	var mu sync.Mutex
	var last policies.Version
	fell := ""
	look := func() report {
		mu.Lock()
		defer mu.Unlock()
		set := source.Load()
		now := policies.Version{}
		if set != nil {
			if now, err = policies.ParseVersion(set.Revision); err != nil && fell == "" {
				fell = err.Error()
			}
		}
		if now.Compare(last) < 0 && fell == "" {
			fell = fmt.Sprintf("from %v to %v", last, now)
		}
		last = now
		st := source.Status()
		return report{Version: now, Digest: st.Digest, Meaning: st.Meaning, Why: st.Why, Bridge: st.Bridge, Fell: fell}
	}
	ctx, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				look()
			}
		}
	})
	defer looking.Wait()
	defer stop()
	return hosttest.Answer(in, out, func(string) (any, error) { return look(), nil })
}
