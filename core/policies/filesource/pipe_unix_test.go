//go:build unix

package filesource_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/policies/filesource"
)

// To open a pipe might never return: it is not opened.
func TestPipe(t *testing.T) {
	t.Parallel()
	followed(t, document(1), filesource.Options{}, func(t *testing.T, path string, s *filesource.Source, _ *lines) {
		set := s.Load()
		require.NoError(t, os.Remove(path))
		require.NoError(t, syscall.Mkfifo(path, 0o600))
		seconds(5)
		assert.Same(t, set, s.Load())
		assert.ErrorContains(t, s.Status().Err, "is not a regular file")
	})
}
