package redissource

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/internal/redistest"
)

// TestBridge: a program that starts while Redis is gone goes by what it had before, and never back behind it.
func TestBridge(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	path := filepath.Join(t.TempDir(), "pay.bridge")
	require.NoError(t, os.WriteFile(path+".next", []byte("of a program that was killed"), 0o600))
	first := followed(t, rdb, "pay", Options{Bridge: path}, quick())
	write(t, rdb, document("pay", 1, 7, "7/1m"))
	awaitText(t, first, "7/1m")
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, patience, time.Millisecond)
	require.NoError(t, first.Close())
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode())
	}

	server.Kill()
	second := followed(t, rdb, "pay", Options{Bridge: path}, quick())
	require.NoError(t, second.Ready(t.Context()))
	assert.Equal(t, "7/1m", second.Load().Policies["api"])
	st := second.Status()
	assert.Equal(t, policies.Version{Generation: 1, Revision: 7}, st.Version)
	assert.Zero(t, st.Read)
	assert.Empty(t, st.Bridge)

	server.Restart(t)
	write(t, rdb, document("pay", 1, 6, "6/1m"))
	awaitMeaning(t, second, policies.Fleet, "this process the later 1.7")
	write(t, rdb, document("pay", 1, 8, "8/1m"))
	awaitText(t, second, "8/1m")
	require.Eventually(t, func() bool {
		d, _, err := readBridge(path, "pay")
		return err == nil && d.Version.Revision == 8
	}, patience, time.Millisecond)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "something was left behind")
}

// TestBrokenBridge: a file that cannot be used is reported, ignored, and replaced by the next document.
func TestBrokenBridge(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	good, err := document(app, 1, 1, "1/1m").Encode()
	require.NoError(t, err)
	other, err := document("pay", 1, 1, "1/1m").Encode()
	require.NoError(t, err)
	unversioned, err := (&policies.Document{App: app}).Encode()
	require.NoError(t, err)
	for name, tc := range map[string]struct{ content, why string }{
		"empty":            {"", "begins with"},
		"cut":              {bridgeFormat + policies.Digest(good) + "\n" + string(good[:20]), "digest"},
		"changed":          {bridgeFormat + policies.Digest(good) + "\n" + strings.Replace(string(good), "1/1m", "9/1m", 1), "digest"},
		"another app's":    {bridgeFormat + policies.Digest(other) + "\n" + string(other), `of the app "pay"`},
		"a later format":   {"weir-bridge 2 " + policies.Digest(good) + "\n" + string(good), "begins with"},
		"without revision": {bridgeFormat + policies.Digest(unversioned) + "\n" + string(unversioned), "no revision"},
		"too large":        {strings.Repeat(" ", 10*maxBridge), "begins with"},
		"large line":       {bridgeFormat + strings.Repeat("0", 10*maxBridge), "begins with"},
		"not a document":   {bridgeFormat + policies.Digest([]byte("{}")) + "\n{}", ""},
		"no document":      {bridgeFormat + policies.Digest(nil) + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "bridge")
			require.NoError(t, os.WriteFile(path, []byte(tc.content), 0o600))
			log := new(logtest.Log)
			s := followed(t, rdb, app, Options{Bridge: path, Log: log.Logger()}, quick())
			require.Eventually(t, func() bool { return s.Status().Bridge != "" }, patience, time.Millisecond)
			assert.Contains(t, s.Status().Bridge, tc.why)
			assert.Less(t, len(s.Status().Bridge), 1000)
			assert.NotEmpty(t, log.With("Options.Bridge"))
			assert.Nil(t, s.Load())
		})
	}
	t.Run("replaced", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "bridge")
		require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
		app := newApp()
		write(t, rdb, document(app, 1, 1, "1/1m"))
		s := followed(t, rdb, app, Options{Bridge: path}, quick())
		awaitText(t, s, "1/1m")
		require.Eventually(t, func() bool { return s.Status().Bridge == "" }, patience, time.Millisecond)
		_, _, err := readBridge(path, app)
		require.NoError(t, err)
	})
	t.Run("no directory", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "later")
		app := newApp()
		write(t, rdb, document(app, 1, 1, "1/1m"))
		s := followed(t, rdb, app, Options{Bridge: filepath.Join(dir, "bridge")}, quick())
		awaitText(t, s, "1/1m")
		require.Eventually(t, func() bool { return s.Status().Bridge != "" }, patience, time.Millisecond)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.Eventually(t, func() bool { return s.Status().Bridge == "" }, patience, time.Millisecond, "it is not tried again")
	})
	t.Run("a directory", func(t *testing.T) {
		t.Parallel()
		app := newApp()
		write(t, rdb, document(app, 1, 1, "1/1m"))
		s := followed(t, rdb, app, Options{Bridge: t.TempDir()}, quick())
		awaitText(t, s, "1/1m")
	})
}

// TestDiskStandsStill: while the disk does not answer, changes are obeyed; and what comes from it late is never older
// than what is in use.
func TestDiskStandsStill(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	bridge := func(revision int64) string {
		path := filepath.Join(t.TempDir(), "bridge")
		data, err := document(app, 1, revision, fmt.Sprint(revision, "/1m")).Encode()
		require.NoError(t, err)
		require.NoError(t, writeBridge(path, policies.Digest(data), string(data)))
		return path
	}
	write(t, rdb, document(app, 1, 5, "5/1m"))
	for _, tc := range []struct{ bridge, last int64 }{{3, 6}, {9, 9}} {
		p := quick()
		p.deadline = 200 * time.Millisecond
		answers := make(chan struct{})
		p.disk = func() { <-answers }
		path := bridge(tc.bridge)
		write(t, rdb, document(app, 1, 5, "5/1m"))
		s := followed(t, rdb, app, Options{Bridge: path, Silent: true}, p)
		awaitText(t, s, "5/1m")
		write(t, rdb, document(app, 1, 6, "6/1m"))
		awaitText(t, s, "6/1m")
		close(answers)
		awaitText(t, s, fmt.Sprint(tc.last, "/1m"))
		require.NoError(t, s.Close())
		assert.Equal(t, tc.last, s.Status().Version.Revision)
		d, _, err := readBridge(path, app)
		require.NoError(t, err)
		assert.Equal(t, tc.last, d.Version.Revision)
	}
}

// FuzzBridge: no bytes panic or are taken for a document of which they are not the bridge.
func FuzzBridge(f *testing.F) {
	good, err := document("pay", 1, 1, "1/1m").Encode()
	require.NoError(f, err)
	f.Add([]byte(bridgeFormat + policies.Digest(good) + "\n" + string(good)))
	f.Add([]byte(bridgeFormat + policies.Digest(nil) + "\n"))
	f.Add([]byte("weir-bridge 1 \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, digest, err := parseBridge(data, "pay")
		if err != nil {
			return
		}
		require.Equal(t, "pay", d.App)
		require.Positive(t, d.Version.Revision)
		require.True(t, strings.HasPrefix(string(data), bridgeFormat+digest+"\n"))
	})
}
