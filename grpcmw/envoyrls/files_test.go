package envoyrls

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/logtest"
)

// lay makes files, and links where a text begins with "->".
func lay(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if to, link := strings.CutPrefix(text, "->"); link {
			require.NoError(t, os.Symlink(to, path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

// texts returns what files have, by their paths below root.
func texts(t *testing.T, root string, files []File) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, f := range files {
		name, err := filepath.Rel(root, f.Name)
		require.NoError(t, err)
		all[name] = string(f.Data)
	}
	return all
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files        map[string]string
		path, prefix string
		skip         bool
		want         map[string]string
	}{
		"runtime": { // RUNTIME_ROOT is a link that is swapped, RUNTIME_SUBDIRECTORY is ratelimit
			files: map[string]string{
				"current":                           "->2024",
				"2024/ratelimit/config/a.yaml":      "a",
				"2024/ratelimit/config/deep/b.yaml": "b",
				"2024/ratelimit/config.yaml":        "c",
				"2024/ratelimit/config.old/d":       "d",
				"2024/ratelimit/configs/e.yaml":     "no",
				"2024/ratelimit/f.yaml":             "no",
				"2024/other/config/g.yaml":          "no",
			},
			path: "current/ratelimit", prefix: "config.",
			want: map[string]string{
				"current/ratelimit/config/a.yaml": "a", "current/ratelimit/config/deep/b.yaml": "b",
				"current/ratelimit/config.yaml": "c", "current/ratelimit/config.old/d": "d",
			},
		},
		"ConfigMap": {
			files: map[string]string{
				"config/..2024_01/a.yaml": "a", "config/..data": "->..2024_01", "config/a.yaml": "->..data/a.yaml",
			},
			path: "config", want: map[string]string{"config/a.yaml": "a"},
		},
		"dots": {
			files: map[string]string{"config/.a": "a", "config/.b/c": "c", "config/d": "d"},
			path:  "config", want: map[string]string{"config/.a": "a", "config/.b/c": "c", "config/d": "d"},
		},
		"without dots": {
			files: map[string]string{"config/.a": "a", "config/.b/c": "c", "config/d": "d"},
			path:  "config", skip: true, want: map[string]string{"config/d": "d"},
		},
		"links to directories": {
			files: map[string]string{"config/a": "a", "config/b": "->../other", "other/c": "c"},
			path:  "config", want: map[string]string{"config/a": "a"},
		},
		"nothing": {files: map[string]string{"config/x": "->..", "other": "a"}, path: "config", want: map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			lay(t, root, c.files)
			files, err := Directory{Path: filepath.Join(root, c.path), Prefix: c.prefix, SkipDotFiles: c.skip}.Files()
			require.NoError(t, err)
			assert.Equal(t, c.want, texts(t, root, files))
		})
	}
}

func TestDirectoryBounds(t *testing.T) {
	t.Parallel()
	read := func(files map[string]string) error {
		root := t.TempDir()
		lay(t, root, files)
		_, err := Directory{Path: root}.Files()
		return err
	}
	half := strings.Repeat("#", maxFileBytes/2)
	require.NoError(t, read(map[string]string{"a": half, "b": half}))
	require.ErrorContains(t, read(map[string]string{"a": half, "b": half + "#"}), "have more than 16777216 bytes")
	require.ErrorContains(t, read(map[string]string{strings.Repeat("a/", maxFileDepth) + "b": ""}), "more than 32 directories deep")
	require.ErrorIs(t, read(map[string]string{"a": "->none"}), os.ErrNotExist, "a file that is not there is no reason to do without it")
	_, err := Directory{Path: filepath.Join(t.TempDir(), "none")}.Files()
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A directory in which no file is selected does not matter, whatever is wrong with it.
func TestDirectoriesWithoutSelectedFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	deep := strings.Repeat("a/", maxFileDepth+1)
	lay(t, root, map[string]string{
		"config/a.yaml":         "a",
		"config/empty/..hidden": "no",
		"other/" + deep + "b":   "no",
		"configs/" + deep + "b": "no",
		"more.config/" + deep:   "->nowhere",
		"con.fig/d":             "no",
	})
	files, err := Directory{Path: root, Prefix: "config."}.Files()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"config/a.yaml": "a"}, texts(t, root, files))

	_, err = Directory{Path: root, Prefix: "other."}.Files()
	require.ErrorContains(t, err, "more than 32 directories deep", "these are selected")

	files, err = Directory{Path: root, Prefix: "con.fi"}.Files()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"con.fig/d": "no"}, texts(t, root, files), "a dot of the prefix may be one of a name")
}

// loads is a follower whose loads are noted.
func loads(path string) (f *follower, all *[]string, said *logtest.Log) {
	all, said = new([]string), new(logtest.Log)
	f = &follower{directory: Directory{Path: path}, log: slog.New(slog.NewTextHandler(said, nil))}
	f.load = func(files ...File) error {
		var text []string
		for _, file := range files {
			text = append(text, string(file.Data))
			if strings.Contains(string(file.Data), "bad") {
				return errors.New(filepath.Base(file.Name) + ":7: it is bad")
			}
		}
		*all = append(*all, strings.Join(text, "+"))
		return nil
	}
	return f, all, said
}

// Files are loaded when they are others and stay so; what cannot be used is said once, and changes nothing.
func TestFollower(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := filepath.Join(root, "config")
	f, all, said := loads(path)
	looks := func(n int) {
		for range n {
			f.look()
		}
	}
	lines := func(what string) int { return len(said.With(what)) }

	looks(3)
	assert.Empty(t, *all, "there is no directory yet")
	assert.Equal(t, 1, lines("no such file"), "%s", said)

	lay(t, path, map[string]string{"a": "a"})
	looks(1)
	assert.Empty(t, *all, "somebody may be writing it")
	looks(5)
	assert.Equal(t, []string{"a"}, *all)

	// A file that is written piece by piece.
	for _, text := range []string{"", "b", "bb", "bbb"} {
		lay(t, path, map[string]string{"a": text})
		looks(1)
	}
	assert.Equal(t, []string{"a"}, *all)
	looks(1)
	assert.Equal(t, []string{"a", "bbb"}, *all)

	// A bad one is refused with all others, and said once.
	lay(t, path, map[string]string{"a": "c", "b": "bad"})
	looks(5)
	assert.Equal(t, []string{"a", "bbb"}, *all)
	assert.Equal(t, 1, lines("b:7: it is bad"), "%s", said)

	// As good as before, it is loaded again.
	lay(t, path, map[string]string{"a": "bbb"})
	require.NoError(t, os.Remove(filepath.Join(path, "b")))
	looks(3)
	assert.Equal(t, []string{"a", "bbb", "bbb"}, *all)

	// Without the directory, or its files, the limits stay. It may be made again.
	require.NoError(t, os.RemoveAll(path))
	looks(5)
	require.NoError(t, os.Mkdir(path, 0o700))
	looks(5)
	assert.Equal(t, []string{"a", "bbb", "bbb"}, *all)
	assert.Equal(t, 2, lines("no such file"), "%s", said)
	assert.Equal(t, 1, lines("has no files any more"), "%s", said)
	lay(t, path, map[string]string{"a": "bbb"})
	looks(3)
	assert.Equal(t, []string{"a", "bbb", "bbb"}, *all, "nothing has changed")
	lay(t, path, map[string]string{"a": "d"})
	looks(3)
	assert.Equal(t, []string{"a", "bbb", "bbb", "d"}, *all)
}

// A ConfigMap is changed by one link, which is replaced in one step.
func TestFollowerOfConfigMap(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	lay(t, path, map[string]string{
		"..1/a": "a1", "..1/b": "b1", "..data": "->..1", "a": "->..data/a", "b": "->..data/b",
	})
	f, all, said := loads(path)
	f.look()
	assert.Equal(t, []string{"a1+b1"}, *all, "the first look waits for nothing")
	lay(t, path, map[string]string{"..2/a": "a2", "..2/b": "b2", "..data.new": "->..2"})
	f.look()
	f.look()
	require.NoError(t, os.Rename(filepath.Join(path, "..data.new"), filepath.Join(path, "..data")))
	require.NoError(t, os.RemoveAll(filepath.Join(path, "..1")))
	f.look()
	f.look()
	assert.Equal(t, []string{"a1+b1", "a2+b2"}, *all)
	assert.Empty(t, said.With("ERROR"), "%s", said)
}

// An empty directory at the beginning is a configuration without limits, as there.
func TestFollowerOfNothing(t *testing.T) {
	t.Parallel()
	f, all, said := loads(t.TempDir())
	f.look()
	f.look()
	assert.Equal(t, []string{""}, *all)
	assert.Len(t, said.With("there are no files"), 1)
}
