package envoyrls

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A domainConfig is one document of the configuration, as a file or an xDS server has it, before any of it is looked at
// as a whole.
type domainConfig struct {
	source      string // the name of the file, or of the resource
	line        int    // 0 in what has no lines
	domain      string
	descriptors []descriptorConfig
	broken      bool // its domain has been named as a mistake
}

type descriptorConfig struct {
	line                        int
	key, value                  string
	limit                       *limitConfig // nil without rate_limit
	shadow, quota, share        bool         // shadow_mode, quota_mode, share_threshold
	detailedMetric, valueMetric bool         // detailed_metric, value_to_metric
	metadata                    map[string]any
	descriptors                 []descriptorConfig
	broken                      bool // its key or value has been named as a mistake
}

type limitConfig struct {
	line       int
	requests   uint32 // requests_per_unit
	unit       string // as written, "" without one
	multiplier uint32 // unit_multiplier, 0 without one
	policy     string // weir's text in the place of unit, "" without one
	unlimited  bool
	name       string
	replaces   []string
	broken     bool // how much it admits has been named as a mistake
}

// The bounds of mistakes.
const (
	maxMistakes     = 50   // that an error lists
	maxNoted        = 2000 // that are looked for
	maxMistakeBytes = 1000 // of a mistake, and of the name of its source
)

// A mistake is something in a configuration that cannot be used.
type mistake struct {
	source string
	line   int // 0 for the source itself
	text   string
}

func (m mistake) String() string {
	if m.line == 0 {
		return short(m.source, maxMistakeBytes) + ": " + m.text
	}
	return fmt.Sprintf("%s:%d: %s", short(m.source, maxMistakeBytes), m.line, m.text)
}

// mistakes are those of a whole configuration.
type mistakes []mistake

func (m *mistakes) add(source string, line int, format string, args ...any) {
	*m = append(*m, mistake{source, line, short(fmt.Sprintf(format, args...), maxMistakeBytes)})
}

// full reports whether there are so many that no more are looked for.
func (m *mistakes) full() bool { return len(*m) >= maxNoted }

// err returns an error with a line for each mistake, by source and line, or nil if there are none.
func (m mistakes) err() error {
	if len(m) == 0 {
		return nil
	}
	slices.SortStableFunc(m, func(a, b mistake) int {
		return cmp.Or(strings.Compare(a.source, b.source), cmp.Compare(a.line, b.line))
	})
	all := len(m)
	m = slices.Compact(m) // what an alias repeats
	lines := make([]error, 0, maxMistakes+1)
	for _, each := range m[:min(len(m), maxMistakes)] {
		lines = append(lines, errors.New(each.String()))
	}
	switch more := len(m) - len(lines); {
	case all >= maxNoted:
		lines = append(lines, fmt.Errorf("and more, which was not read because of %d mistakes before it", maxNoted))
	case more > 0:
		lines = append(lines, fmt.Errorf("and %d more mistakes", more))
	}
	return errors.Join(lines...)
}
