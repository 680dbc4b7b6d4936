package observe_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/observe"
)

// The page has the table of names.
func TestNamesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/observe.md")
	require.NoError(t, err)
	var table strings.Builder
	for _, m := range observe.Metrics() {
		attributes := ""
		for i, a := range m.Attributes {
			attributes += ", "[:2*min(i, 1)] + "`" + a + "`"
		}
		unit := m.Unit
		if unit != "" {
			unit = "`" + unit + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", m.Name, unit, attributes, strings.TrimSuffix(m.Help, "."))
	}
	assert.True(t, strings.Contains(string(page), table.String()), "docs/observe.md has another table than Metrics; it should be\n%s", table.String())
}

func TestPrometheusNames(t *testing.T) {
	names := map[string]bool{}
	for _, m := range observe.Metrics() {
		assert.NotEqual(t, "1", m.Unit, "%s: OpenTelemetry's translation would make a ratio of it", m.Name)
		assert.False(t, names[m.Prometheus()], m.Name)
		assert.True(t, strings.HasSuffix(m.Help, "."), m.Help)
		names[m.Prometheus()] = true
	}
	for _, name := range []string{"weir_decisions_total", "weir_decision_duration_seconds", "weir_policy_info", "weir_background_oldest_seconds"} {
		assert.Contains(t, names, name)
	}
}
