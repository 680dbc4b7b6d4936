package envoyrls

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocument holds that the configurations of docs/envoy.md can be read, and that each of the differences it lists has
// a test.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/envoy.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(domain:.*?)```").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		tree, err := load([]File{{Name: "envoy.md", Data: []byte(block[1])}}, false)
		require.NoError(t, err, block[1])
		assert.NotEmpty(t, tree.rules)
	}

	tests := map[string]bool{}
	for _, pattern := range []string{"*_test.go", "../../cmd/weir/*_test.go", "../../cmd/weir/internal/rlsenv/*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, f := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
				tests[string(f[1])] = true
			}
		}
	}
	_, table, found := strings.Cut(string(text), "\n## What differs?\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| |") || strings.HasPrefix(line, "|---") {
			continue
		}
		rows++
		_, names, found := strings.Cut(line, "<!-- ")
		names, _, _ = strings.Cut(names, " -->")
		if assert.True(t, found, "no test holds %s", line) {
			for name := range strings.FieldsSeq(names) {
				assert.True(t, tests[name], "there is no %s for %s", name, line)
			}
		}
	}
	assert.Greater(t, rows, 10)
}
