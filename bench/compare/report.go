package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// report holds the samples of a run, in the order of sections.
type report struct {
	Machine  machine
	Sections []outcome
}

// machine describes the machine, and the contenders on it.
type machine struct {
	Cores      int
	Go         string
	Contenders []string // modules with their versions
}

func newReport() *report {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.Contains(contenders, d.Path) {
				m.Contenders = append(m.Contenders, d.Path+" "+d.Version)
			}
		}
	}
	return &report{Machine: m}
}

// contenders are the modules that the table names with their versions.
var contenders = []string{
	"github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "github.com/redis/rueidis",
	"github.com/ulule/limiter/v3", "github.com/throttled/throttled/v2", "github.com/sethvargo/go-limiter",
	"golang.org/x/time", "github.com/go-chi/httprate", "github.com/didip/tollbooth/v7",
	"github.com/JGLTechnologies/gin-rate-limit", "github.com/gin-gonic/gin", "github.com/labstack/echo/v4",
	"github.com/gofiber/fiber/v2",
}

// The files of a report.
const (
	samplesFile = "results.json"
	tableFile   = "results.md"
)

// write writes the files of a report into a directory. Sections that did not run keep what an earlier report has of
// them.
func (r *report) write(dir string) error {
	old, err := readReport(dir)
	if err == nil {
		r.Sections = arranged(append(r.Sections, old.Sections...))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := r.files()
	if err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}

// arranged returns the outcomes in the order of sections, of each section the first. Sections and rows that are no more
// are left out.
func arranged(all []outcome) (kept []outcome) {
	for _, s := range sections() {
		if i := slices.IndexFunc(all, func(o outcome) bool { return o.Name == s.name }); i >= 0 {
			o := all[i]
			o.section = s
			o.Rows = slices.DeleteFunc(o.Rows, func(r rowOutcome) bool {
				return !slices.ContainsFunc(s.rows, func(known row) bool { return known.name == r.Name })
			})
			kept = append(kept, o)
		}
	}
	return kept
}

func readReport(dir string) (*report, error) {
	text, err := os.ReadFile(filepath.Join(dir, samplesFile))
	if err != nil {
		return nil, err
	}
	r := new(report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", samplesFile, err)
	}
	r.Sections = arranged(r.Sections)
	return r, nil
}

// files are the samples, the table and the charts.
func (r *report) files() (map[string][]byte, error) {
	samples, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	// A line for each contender: git can show what has changed.
	samples = bytes.ReplaceAll(samples, []byte(`{"Name"`), []byte("\n"+`{"Name"`))
	files := map[string][]byte{samplesFile: append(samples, '\n')}
	var table bytes.Buffer
	if err := r.table(&table); err != nil {
		return nil, err
	}
	files[tableFile] = table.Bytes()
	charts := map[string][]outcome{}
	for _, o := range r.Sections {
		charts[o.section.chart] = append(charts[o.section.chart], o)
	}
	for name, all := range charts {
		files[name+".svg"] = drawChart(all)
	}
	return files, nil
}

// spread is the median and the range of a figure over the rounds.
type spread struct{ median, low, high float64 }

func spreadOf(values []float64) spread {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return spread{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

// line is a row of the table.
type line struct {
	name           string
	kind           kind
	value          spread    // in the unit of the section
	ratios         []float64 // to the baseline, and to those besides: how many times as much
	allocs         float64   // for each decision
	client, server time.Duration
	p50, p99       time.Duration
	failed         float64 // share
	left           float64 // of bytes
}

// lines summarizes a section, with the rows in their order.
func (o outcome) lines() []line {
	bare := o.row(o.section.subtract)
	// of returns a figure of a row in a round, less that of the bare handler.
	of := func(r rowOutcome, round int, f func(s sample) float64) float64 {
		v := f(r.Samples[round])
		if bare != nil {
			v -= f(bare.Samples[round])
		}
		return v
	}
	value := func(s sample) float64 { return s.value(o.section.unit) }
	all := make([]line, 0, len(o.Rows))
	for _, r := range o.Rows {
		if r.Name == o.section.subtract {
			continue
		}
		l := line{name: r.Name, kind: r.Kind}
		over := func(f func(round int) float64) spread {
			var values []float64
			for i := range r.Samples {
				values = append(values, f(i))
			}
			return spreadOf(values)
		}
		// per returns a figure for each decision.
		per := func(f func(s sample) float64) float64 {
			return over(func(i int) float64 { return of(r, i, func(s sample) float64 { return f(s) / s.made() }) }).median
		}
		l.value = over(func(i int) float64 { return of(r, i, value) })
		for _, name := range o.section.baselines() {
			ratio := math.NaN()
			if base := o.row(name); base != nil {
				ratio = over(func(i int) float64 { return of(r, i, value) / of(*base, i, value) }).median
			}
			l.ratios = append(l.ratios, ratio)
		}
		l.allocs = per(func(s sample) float64 { return float64(s.Allocs) })
		l.client = time.Duration(per(func(s sample) float64 { return float64(s.Client) }))
		l.server = time.Duration(per(func(s sample) float64 { return float64(s.Server) }))
		l.failed = over(func(i int) float64 { return float64(r.Samples[i].Failed) / float64(r.Samples[i].Decisions) }).median
		l.p50 = time.Duration(over(func(i int) float64 { return float64(r.Samples[i].P50) }).median)
		l.p99 = time.Duration(over(func(i int) float64 { return float64(r.Samples[i].P99) }).median)
		l.left = r.Samples[len(r.Samples)-1].Left
		all = append(all, l)
	}
	return all
}

// baselines are all rows that others are compared with.
func (s section) baselines() []string { return append([]string{s.baseline}, s.also...) }

func (o outcome) row(name string) *rowOutcome {
	if i := slices.IndexFunc(o.Rows, func(r rowOutcome) bool { return r.Name == name }); i >= 0 {
		return &o.Rows[i]
	}
	return nil
}

// made returns the number of decisions, at least 1. A call that failed decided nothing, however fast it was.
func (s sample) made() float64 { return float64(max(1, s.Decisions-s.Failed)) }

// value returns the figure of a sample in a unit.
func (s sample) value(u unit) float64 {
	switch u {
	case perSecond:
		return s.made() / s.Elapsed.Seconds()
	case nanoseconds:
		return float64(s.Elapsed.Nanoseconds()) / s.made()
	case halfOfThem:
		return float64(s.P50)
	case bytesPerKey:
		return s.Bytes
	}
	return math.NaN()
}
