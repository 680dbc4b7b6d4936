package redissource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscribe wakes the poll whenever a change is announced, and whenever a subscription begins, since what was announced
// before is lost. It ends with ctx. Without it the poll finds each change all the same, in its intervals.
func (s *Source) subscribe(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for failures := 1; ; failures++ {
		heard, err := s.hear(ctx)
		if ctx.Err() != nil {
			return
		}
		if heard {
			failures = 1
		}
		s.log.warn("subscription", "changes are not announced to this process, which reads its policies in intervals", err)
		timer.Reset(s.pause(failures))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// errSilent ends a subscription on which nothing comes any more, not even the answer to a PING.
var errSilent = errors.New("the subscription is silent")

// hear subscribes, and wakes the poll, until the subscription is lost. It reports whether there was one.
func (s *Source) hear(ctx context.Context) (heard bool, err error) {
	// That of a Ring panics if no server of it is up.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	sub := s.rdb.Subscribe(ctx, Channel(s.app))
	defer sub.Close() // which says no more than that it was closed before
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = sub.Close() // which ends a ReceiveTimeout
	})
	defer func() {
		if !stop() {
			<-closed
		}
	}()
	for silent := 0; ; {
		message, err := sub.ReceiveTimeout(ctx, s.pace.silence)
		var timeout net.Error
		switch {
		case err == nil:
			silent = 0
			switch message.(type) {
			case *redis.Subscription, *redis.Message: // whose text does not matter
				heard = true
				signal(s.wake)
			}
		case !errors.As(err, &timeout) || !timeout.Timeout():
			return heard, err
		case silent == 2:
			return heard, errSilent
		default:
			silent++
			if err := sub.Ping(ctx); err != nil {
				return heard, err
			}
		}
	}
}
