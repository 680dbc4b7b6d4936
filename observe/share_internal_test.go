package observe

import (
	"errors"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/observe/internal/worst"
)

// Whatever becomes of additions, what a key was counted lies between what was added for it and that with all that was
// missed, once an addition has been made after it.
func TestSharesAreBounds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		now := time.Unix(1_000_000, 0)
		at := func() time.Duration { return time.Duration(now.UnixMicro()) * time.Microsecond }
		table := worst.New(worst.Options{Counters: 8, Period: 90 * time.Second}, at())
		p := &shared{}
		truth, low, missed := map[string]int64{}, map[string]int64{}, map[int64]int64{}
		tick := func(outcome string) {
			if !p.collect(table, now) {
				return
			}
			add := func() {
				for key, n := range p.units {
					low[key] += n
				}
				missed[p.minute] = p.missed
			}
			switch outcome {
			case "added":
				add()
				p.added(nil)
			case "not added":
				p.added(&core.StoreError{Class: core.ClassDown, Err: errors.New("gone")})
			case "no answer, added":
				add()
				p.added(&core.StoreError{Class: core.ClassLost, MaybeExecuted: true, Err: errors.New("gone")})
			case "no answer, not added":
				p.added(&core.StoreError{Class: core.ClassLost, MaybeExecuted: true, Err: errors.New("gone")})
			case "mistake":
				p.added(errors.New("no board"))
			}
		}
		for range rapid.IntRange(1, 200).Draw(r, "steps") {
			switch rapid.SampledFrom([]string{"count", "count", "count", "count", "count", "count", "wait", "tick"}).Draw(r, "do") {
			case "count":
				key := strconv.Itoa(rapid.IntRange(0, 14).Draw(r, "key"))
				truth[key]++
				table.Add(at(), []byte(key), 1)
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(1, 100).Draw(r, "seconds")) * time.Second)
			case "tick":
				tick(rapid.SampledFrom([]string{"added", "added", "not added", "no answer, added", "no answer, not added", "mistake"}).Draw(r, "outcome"))
			}
		}
		tick("added")
		sum := int64(0)
		for m := range maps.Values(missed) {
			sum += m
		}
		for key, n := range truth {
			assert.LessOrEqual(r, low[key], n, key)
			assert.GreaterOrEqual(r, low[key]+sum, n, key)
		}
	})
}

// Many keys that could not be added for long take bounded memory.
func TestSharesOfAnOutageAreBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	table := worst.New(worst.Options{Counters: 1 << 16, Period: time.Hour}, time.Duration(now.UnixMicro())*time.Microsecond)
	p := &shared{}
	for tick := range 20 {
		for i := range 100 {
			for range 3 {
				table.Add(time.Duration(now.UnixMicro())*time.Microsecond, strconv.AppendInt(nil, int64(1000*tick+i), 10), 1)
			}
		}
		assert.True(t, p.collect(table, now))
		assert.LessOrEqual(t, len(p.units), shareMostKeys)
		p.added(errors.New("gone"))
		now = now.Add(shareEvery)
	}
	assert.Equal(t, int64(3*20+3*(20-3)), p.carry, "of each 10 seconds a key beyond the 50, and, when there are more than 150, one that is left out")
}
