package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/internal/schedtest"
)

// memberEnv names the task of a process that is a member of the fleet: its membership.
const memberEnv = "WEIR_SOAK_MEMBER"

// membership is the task of a member of the fleet.
type membership struct {
	Process, Callers int
	Seed             uint64
	Addr, CertFile   string // with a certificate to trust it is by TLS
}

// The lines that a member is sent. It answers each with one line of JSON.
const (
	sayStatus = "status" // a status
	sayPause  = "pause"  // a report, when all callers stand still
	sayGo     = "go"     // a status; followed by the number of the round
)

// status counts since the beginning.
type status struct {
	Served, Failed int64  // of callers who had the time
	LightFailed    int64  // of those who stay under their limit
	LightLast      string // why
	Lost           schedtest.Lost
}

// report holds everything since the last report.
type report struct {
	Private   [len(private)][]tally // of each caller
	Remote    [len(shared)][]admission
	Alone     [len(shared)][]admission // by the process itself
	Uncounted int64                    // let pass by nobody
	Held      []held                   // granted by the server
	HeldAlone []held
	Decisions int64
	Late      int64         // of them
	Latest    time.Duration // by how much, beyond what the scheduler took
	Failures  map[string]int64
	Wrong     []string // what must never be
	Logged    int64

	Goroutines, Files int
	Heap              uint64
}

// settling is the longest wait of a member for its work in the background.
const settling = 3 * time.Second

// wrongs bounds what a report says is wrong.
const wrongs = 20

// process is a member of the fleet.
type process struct {
	membership
	probe    *schedtest.Probe
	limiters struct {
		light, work *enforce.Limiter
		private     [len(private)]*enforce.Limiter
		shared      [len(shared)]*enforce.Limiter
	}
	gate   sync.RWMutex // held by those who decide
	round  int          // changes only while nobody decides
	logged atomic.Int64
	usual  int // goroutines, when the callers stood still for the first time

	mu     sync.Mutex
	sums   status
	report report
}

// member is the whole life of a member of the fleet, if this process is one. It ends with its standard input.
func member(ctx context.Context, in io.Reader, out io.Writer) (isMember bool, err error) {
	p := &process{probe: schedtest.New()}
	if isMember, err = hosttest.Task(memberEnv, &p.membership); !isMember || err != nil {
		return isMember, err
	}
	if err := p.open(); err != nil {
		return true, err
	}
	p.renew()
	p.gate.Lock()
	go p.probe.Run(ctx.Done())
	p.begin(ctx)
	return true, hosttest.Answer(in, out, p.answer)
}

func (p *process) open() error {
	o := redisstore.ClientOptions(p.Addr)
	if p.CertFile != "" {
		var err error
		if o.TLSConfig, err = redistest.Trust(p.CertFile); err != nil {
			return err
		}
	}
	s, err := redisstore.New(redis.NewUniversalClient(o), redisstore.Options{})
	if err != nil {
		return err
	}
	l := &p.limiters
	l.light, err = enforce.New(s, light, enforce.Options{Log: slog.New(slog.NewTextHandler(&counter{&p.logged}, nil))})
	with := func(into **enforce.Limiter, policy core.Policy) {
		if err == nil {
			*into, err = l.light.With(policy)
		}
	}
	with(&l.work, work)
	for i := range private {
		with(&l.private[i], private[i])
	}
	for i := range shared {
		with(&l.shared[i], shared[i].policy)
	}
	return err
}

// counter counts lines.
type counter struct{ lines *atomic.Int64 }

func (c *counter) Write(b []byte) (int, error) {
	c.lines.Add(1)
	return len(b), nil
}

// renew begins a report. It is locked.
func (p *process) renew() {
	old := p.report
	p.report = report{Failures: map[string]int64{}}
	for i := range private {
		p.report.Private[i] = make([]tally, p.Callers)
	}
	for i := range shared { // their room is used again
		p.report.Remote[i], p.report.Alone[i] = old.Remote[i][:0], old.Alone[i][:0]
	}
	p.report.Held, p.report.HeldAlone = old.Held[:0], old.HeldAlone[:0]
}

// answer answers a line. The callers ask from each sayGo until the next sayPause.
func (p *process) answer(line string) (any, error) {
	word, round, _ := strings.Cut(line, " ")
	switch word {
	case sayGo:
		p.round, _ = strconv.Atoi(round)
		p.gate.Unlock()
		return p.status(), nil
	case sayStatus:
		return p.status(), nil
	case sayPause:
		p.gate.Lock()
		return p.stand(), nil
	}
	return nil, fmt.Errorf("soak: a member got the line %q, expected %s, %s or %s", line, sayStatus, sayPause, sayGo)
}

func (p *process) status() status {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probe.Sample()
	p.sums.Lost = p.probe.Lost()
	return p.sums
}

// stand reports while all callers stand still.
func (p *process) stand() report {
	fewest := runtime.NumGoroutine()
	for start := time.Now(); time.Since(start) < settling; { // what is still done in the background ends
		<-time.After(20 * time.Millisecond)
		fewest = min(fewest, runtime.NumGoroutine())
		if p.usual == 0 && time.Since(start) > calmTime {
			p.usual = fewest
		}
		if p.usual > 0 && fewest <= p.usual {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.report
	r.Logged = p.logged.Swap(0)
	p.renew()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd") // those that are open
	r.Goroutines, r.Heap, r.Files = fewest, m.HeapAlloc, len(files)
	return r
}
