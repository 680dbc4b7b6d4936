//go:build unix

package redissource

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBridgeIsAPipe: a pipe of which nobody writes the other end keeps no program from following Redis, nor from ending.
func TestBridgeIsAPipe(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	path := filepath.Join(t.TempDir(), "bridge")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	app := newApp()
	s := followed(t, rdb, app, Options{Bridge: path}, quick())
	write(t, rdb, document(app, 1, 1, "1/1m"))
	awaitText(t, s, "1/1m")
}
