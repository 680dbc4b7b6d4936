package observe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/observe"
)

// A histogram of another library, which is filled as events come. What it needs of a series is made once, and kept with
// the series.
func ExampleObserver_Count() {
	o, err := observe.New(observe.Options{})
	if err != nil {
		panic(err)
	}
	library := new(int)
	record := func(s *observe.Series, took time.Duration) {
		labels, known := s.Memo().Load(library).(string)
		if !known {
			labels, _ = s.Memo().LoadOrStore(library, fmt.Sprint(s.Values)).(string)
		}
		fmt.Println(labels, took)
	}

	decided := guard.Event{Policy: "api", Rule: "Rule", Outcome: core.Admitted, From: guard.FromStore, Took: time.Millisecond}
	if took, _ := o.Count(&decided); took != nil {
		record(took, decided.Took)
	}
	flight := stats.Flight{Server: "10.0.0.1:6379", Calls: 3, Took: 2 * time.Millisecond}
	record(o.CountFlight(&flight), flight.Took)
	// Output:
	// [api store] 1ms
	// [10.0.0.1:6379 false] 2ms
}

// A duration is in the series that Count returns, whatever was folded into "other".
func TestCountReturnsTheSeries(t *testing.T) {
	o, err := observe.New(observe.Options{MaxSeries: 500})
	require.NoError(t, err)
	times, waits := map[string]uint64{}, map[string]uint64{}
	for i := range 3000 {
		e := guard.Event{
			Policy: fmt.Sprint("p", i%300), Rule: "Rule", From: guard.FromStore,
			Outcome: []core.Outcome{core.Admitted, core.AtLimit, core.Refused}[i/300%3],
		}
		if i%7 > 0 {
			e.Took = time.Duration(i)
		}
		if i%5 == 0 {
			e.Waited = time.Second
		}
		took, waited := o.Count(&e)
		assert.Equal(t, e.Took > 0, took != nil)
		assert.Equal(t, e.Waited > 0, waited != nil)
		if took != nil {
			times[fmt.Sprint(took.Values)]++
		}
		if waited != nil {
			waits[fmt.Sprint(waited.Values)]++
		}
	}
	s := o.Snapshot()
	for _, d := range s.Durations {
		assert.Equal(t, d.Histogram.Count, times[fmt.Sprint([]string{d.Policy, d.From})], d.Policy)
	}
	for _, q := range s.Queues {
		assert.Equal(t, q.Histogram.Count, waits[fmt.Sprint([]string{q.Policy})], q.Policy)
	}
	assert.Len(t, times, len(s.Durations))
	assert.Len(t, waits, len(s.Queues))
	assert.Contains(t, times, "[other store]")
	assert.Contains(t, times, "[p0 store]")
	took, waited := o.Count(&guard.Event{Policy: "p0", Rule: "Rule", Settled: true, Used: 3, Took: 1, Waited: 1})
	assert.Nil(t, took)
	assert.Nil(t, waited)
}
