package rights_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/rights"
)

// The table in the documentation is that of the code.
func TestDocumentedTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/admin.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "| role | may |\n|---|---|\n")
	require.True(t, found)
	table, _, found = strings.Cut(table, "\n\n")
	require.True(t, found)
	var want []string
	for _, right := range rights.Table() {
		want = append(want, fmt.Sprintf("| %s | %s |", right.Least, right.Does))
	}
	assert.Equal(t, strings.Join(want, "\n"), table)
}
