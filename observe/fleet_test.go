package observe_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/observe"
)

const processOf = "WEIR_OBSERVE_PROCESS"

func TestMain(m *testing.M) {
	hosttest.Main(m, func() (isProcess bool, err error) {
		var addr string
		if isProcess, err = hosttest.Task(processOf, &addr); isProcess && err == nil {
			err = process(addr)
		}
		return isProcess, err
	})
}

// process is one of a fleet. It carries out the lines that it reads: "refuse N" lets a guard refuse N requests of Zipf
// keys, amid a flood, and answers with what each key was refused so far; "share" adds to the boards what is new; "on"
// refuses, answers and shares until the process is killed.
func process(addr string) error {
	o, err := observe.New(observe.Options{})
	if err != nil {
		return err
	}
	store, err := redisstore.New(redis.NewUniversalClient(redisstore.ClientOptions(addr)), redisstore.Options{Deadline: time.Minute})
	if err != nil {
		return err
	}
	if err := o.Share(store); err != nil {
		return err
	}
	truth := map[string]int{}
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "login: 1/366d", Key: keyfunc.Header("X-User"), Cost: func(keyfunc.Request) int64 { return 2 }},
		Observe: func(e guard.Event) {
			truth[e.Key()]++
			o.Observe(e)
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(os.Getpid()), 1)) //nolint:gosec // it is positive
	sums, sum := make([]float64, 20_000), 0.0
	for i := range sums {
		sum += 1 / math.Pow(float64(i+1), 1.2)
		sums[i] = sum
	}
	refuse := func(n int) {
		for range n {
			r := newRequest()
			if r.key = "flood" + strconv.Itoa(random.IntN(20_000)); random.IntN(2) == 0 {
				r.key = "user" + strconv.Itoa(sort.SearchFloat64s(sums, random.Float64()*sum))
			}
			v := g.Check(r)
			v.Finish(guard.Final{})
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		do, n, _ := strings.Cut(lines.Text(), " ")
		switch do {
		case "refuse":
			requests, _ := strconv.Atoi(n)
			refuse(requests)
		case "share":
			o.ShareNow()
		case "on":
			for {
				refuse(500)
				if err := out.Encode(truth); err != nil {
					return err
				}
				o.ShareNow()
			}
		}
		if err := out.Encode(truth); err != nil {
			return err
		}
	}
	return o.Close()
}

// Four processes refuse, and share what they count; one is killed in the midst of it. What each key was refused lies within
// the bounds, of the one that was killed as far as it was heard of, and the first of the true first 20 are found.
func TestFleetWorst(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	server := redistest.Single(t)
	var processes []*hosttest.Process
	for range 4 {
		processes = append(processes, hosttest.Start(t, processOf, server.Addr()))
	}
	const rounds, requests = 3, 20_000
	truth := make([]map[string]int, len(processes)) // of each process, at its last addition
	for range rounds {
		for i, p := range processes {
			require.NoError(t, p.Ask("refuse "+strconv.Itoa(requests), &truth[i]))
			require.NoError(t, p.Ask("share", new(map[string]int)))
		}
	}
	killed := processes[3]
	_, err := fmt.Fprintln(killed.In, "on")
	require.NoError(t, err)
	surely, maybe := truth[3], truth[3] // it has shared, or may have shared
	for line := 0; ; line++ {
		if line == 5 {
			require.NoError(t, killed.Kill())
		}
		var next map[string]int
		if err := killed.Read(&next); err != nil {
			break
		}
		surely, maybe = maybe, next
	}
	for i, p := range processes[:3] {
		require.NoError(t, p.Ask("refuse "+strconv.Itoa(requests), &truth[i]))
		require.NoError(t, p.Ask("share", new(map[string]int)))
	}

	store, err := redisstore.New(server.Client(t), redisstore.Options{Deadline: time.Minute})
	require.NoError(t, err)
	callers, rest, err := observe.FleetWorst(t.Context(), store, "login", time.Hour, 500)
	require.NoError(t, err)
	require.NotEmpty(t, callers)
	sum := func(key string, killed map[string]int) (n uint64) {
		for _, of := range []map[string]int{truth[0], truth[1], truth[2], killed} {
			n += uint64(of[key]) //nolint:gosec // it is positive
		}
		return n
	}
	listed := map[string]bool{}
	for _, c := range callers {
		listed[c.Key] = true
		assert.LessOrEqual(t, sum(c.Key, surely), c.Count, c.Key)
		assert.GreaterOrEqual(t, sum(c.Key, maybe), c.Count-c.Error, c.Key)
	}
	for _, of := range append(truth[:3:3], surely) {
		for key := range of {
			if !listed[key] {
				assert.LessOrEqual(t, sum(key, surely), rest, key)
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(maybe), func(a, b string) int { return cmp.Compare(sum(b, maybe), sum(a, maybe)) })
	found := 0
	for _, c := range callers[:20] {
		if slices.Contains(keys[:20], c.Key) {
			found++
		}
	}
	assert.GreaterOrEqual(t, found, 18, "it is 19 or 20 nearly always: who is the 20th is a matter of some refusals more or less")
	first := callers[0]
	t.Logf("%d of the true first 20; the first was refused %d times, by the bounds %d to %d, and the rest at most %d",
		found, sum(first.Key, maybe), first.Count-first.Error, first.Count, rest)
}
