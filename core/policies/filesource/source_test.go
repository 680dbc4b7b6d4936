package filesource_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/filesource"
)

// document is a file with one number.
func document(rate int) string {
	return fmt.Sprintf("format: 1\npolicies:\n  api:\n    text: %d/1m\n", rate)
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns how many lines have a text.
func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// write writes a file as an editor does that takes its time, at the time of the bubble.
func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chtimes(path, time.Now(), time.Now()))
}

// follow runs a test with a Source of a file, in a bubble of time.
func followed(t *testing.T, text string, o filesource.Options, test func(t *testing.T, path string, s *filesource.Source, log *lines)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	synctest.Test(t, func(t *testing.T) {
		if text != "" {
			write(t, path, text)
		}
		log := &lines{}
		o.Log = slog.New(slog.NewTextHandler(log, nil))
		s, err := filesource.New(path, o)
		require.NoError(t, err)
		defer func() { assert.NoError(t, s.Close()) }()
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // of the bubble, so that looks are between the test's seconds
		test(t, path, s, log)
	})
}

// now returns the text in use.
func now(s *filesource.Source) string {
	if set := s.Load(); set != nil {
		return set.Policies["api"]
	}
	return ""
}

func seconds(n int) {
	time.Sleep(time.Duration(n) * time.Second) //nolint:forbidigo // of the bubble
	synctest.Wait()
}

func TestSource(t *testing.T) {
	t.Parallel()
	followed(t, document(1), filesource.Options{}, func(t *testing.T, path string, s *filesource.Source, log *lines) {
		assert.Equal(t, "1/1m", now(s))
		set := s.Load()
		assert.Regexp(t, `^[0-9a-f]{8}$`, set.Revision)
		assert.Equal(t, set.Revision, s.Status().Revision)
		assert.Equal(t, 1, s.Status().Policies)
		assert.Equal(t, 1, log.count("level=INFO"))

		seconds(10)
		assert.Same(t, set, s.Load(), "a file that does not change is not taken up again")

		write(t, path, document(2))
		seconds(1)
		assert.Equal(t, "1/1m", now(s), "its writer may be in the middle of it")
		seconds(1)
		assert.Equal(t, "2/1m", now(s))
		assert.NotEqual(t, set.Revision, s.Load().Revision)
		assert.Equal(t, 2, log.count("level=INFO"))

		old := time.Now().Add(-time.Hour) // as of a file that was moved here
		require.NoError(t, os.WriteFile(path+".new", []byte(document(3)), 0o600))
		require.NoError(t, os.Chtimes(path+".new", old, old))
		require.NoError(t, os.Rename(path+".new", path))
		seconds(1)
		assert.Equal(t, "3/1m", now(s))

		write(t, path, document(4))
		require.NoError(t, s.Reload(t.Context()))
		assert.Equal(t, "4/1m", now(s), "at once")

		set = s.Load()
		require.NoError(t, os.Chtimes(path, old, old))
		require.NoError(t, s.Reload(t.Context()))
		seconds(3)
		assert.Same(t, set, s.Load(), "a file with the same text is not another one")
		assert.Zero(t, log.count("level=ERROR"))
	})
}

// A file may change twice within the time that its file system notes, without another size.
func TestChangeWithoutTrace(t *testing.T) {
	t.Parallel()
	followed(t, document(1), filesource.Options{}, func(t *testing.T, path string, s *filesource.Source, _ *lines) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		seconds(1)
		require.NoError(t, os.WriteFile(path, []byte(document(2)), 0o600))
		require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
		seconds(2)
		assert.Equal(t, "2/1m", now(s))
	})
}

// A writer that is slower than the looks is waited for, as long as each look sees another text.
func TestSlowWriter(t *testing.T) {
	t.Parallel()
	followed(t, document(1), filesource.Options{}, func(t *testing.T, path string, s *filesource.Source, log *lines) {
		text := "format: 1\npolicies:\n"
		for i := range 5 {
			text += fmt.Sprintf("  p%d:\n    text: 5/1m\n", i)
			write(t, path, text)
			seconds(1)
			assert.Equal(t, "1/1m", now(s))
		}
		seconds(1)
		assert.Len(t, s.Load().Policies, 5)
		assert.Equal(t, 2, log.count("level=INFO"))
	})
}

// A ConfigMap is a directory of links, the last of which is replaced.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		version := func(n int) string {
			name := fmt.Sprint("..", n)
			require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
			write(t, filepath.Join(dir, name, "policies.yaml"), document(n))
			return name
		}
		require.NoError(t, os.Symlink(version(1), filepath.Join(dir, "..data")))
		require.NoError(t, os.Symlink(filepath.Join("..data", "policies.yaml"), filepath.Join(dir, "policies.yaml")))
		s, err := filesource.New(filepath.Join(dir, "policies.yaml"), filesource.Options{Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer s.Close()
		assert.Equal(t, "1/1m", now(s))
		seconds(10)
		require.NoError(t, os.Symlink(version(2), filepath.Join(dir, "..tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "..1")))
		seconds(3)
		assert.Equal(t, "2/1m", now(s))
	})
}

// A file with mistakes is refused as a whole. The policies from before hold, and the log has one line of it.
func TestAFileWithMistakes(t *testing.T) {
	t.Parallel()
	followed(t, document(1), filesource.Options{}, func(t *testing.T, path string, s *filesource.Source, log *lines) {
		set, spoiled := s.Load(), time.Now()
		for _, c := range []struct {
			name  string
			spoil func()
			want  string
		}{
			{"mistakes", func() { write(t, path, document(2)+"  login:\n    text: 5 per minute\n") }, path + `:6:11: policies.login.text: "5 per minute": at offset`},
			{"half a file", func() { write(t, path, "format: 1\npolicies: {") }, path + ":3:1: this is not YAML"},
			{"empty", func() { write(t, path, "") }, "the file is empty"},
			{"too large", func() { write(t, path, strings.Repeat("#", filesource.MaxSize+1)) }, "the file has more than 2097152 bytes"},
			{"gone", func() { require.NoError(t, os.Remove(path)) }, "no such file"},
			{"a directory", func() { require.NoError(t, os.Mkdir(path, 0o700)) }, "is not a regular file"},
			{"a loop", func() {
				require.NoError(t, os.Remove(path))
				require.NoError(t, os.Symlink(path, path))
			}, "too many"},
			{"unreadable", func() {
				require.NoError(t, os.Remove(path))
				write(t, path, document(2))
				require.NoError(t, os.Chmod(path, 0))
			}, "permission denied"},
		} {
			if c.name == "unreadable" && os.Geteuid() == 0 {
				continue // root may read it
			}
			before := log.count("level=ERROR")
			c.spoil()
			seconds(5)
			assert.Same(t, set, s.Load(), c.name)
			assert.ErrorContains(t, s.Status().Err, c.want, c.name)
			since, why := s.Lag()
			assert.Contains(t, why, c.want, c.name)
			assert.False(t, since.Before(spoiled), c.name)
			assert.LessOrEqual(t, since.Sub(spoiled), 3*time.Second, "the time of the first look at a file that cannot be used")
			assert.ErrorContains(t, s.Reload(t.Context()), c.want, c.name)
			assert.Equal(t, 1, log.count("level=ERROR")-before, c.name)
		}
		require.NoError(t, os.RemoveAll(path))
		write(t, path, document(1))
		seconds(3)
		assert.Same(t, set, s.Load(), "what was in use is there again")
		require.NoError(t, s.Status().Err)
		since, why := s.Lag()
		assert.Zero(t, since)
		assert.Empty(t, why)
		write(t, path, document(2))
		seconds(3)
		assert.Equal(t, "2/1m", now(s))
		require.NoError(t, s.Status().Err)
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	_, err := filesource.New(path, filesource.Options{})
	assert.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("format: 1\npolicies:\n  a: {text: x}\n  b: {text: y}\n"), 0o600))
	_, err = filesource.New(path, filesource.Options{Missing: true, Log: slog.New(slog.DiscardHandler)})
	var mistakes policies.Mistakes
	require.ErrorAs(t, err, &mistakes)
	assert.Len(t, mistakes, 2)
	assert.Contains(t, err.Error(), "filesource: "+path+":3:13: policies.a.text: ")
}

// A file that may be missing is taken up when it comes, and holds when it goes.
func TestMissing(t *testing.T) {
	t.Parallel()
	followed(t, "", filesource.Options{Missing: true}, func(t *testing.T, path string, s *filesource.Source, log *lines) {
		seconds(5)
		assert.Nil(t, s.Load())
		assert.Equal(t, filesource.Status{}, s.Status())
		require.NoError(t, s.Reload(t.Context()))
		write(t, path, document(7))
		seconds(3)
		assert.Equal(t, "7/1m", now(s))
		require.NoError(t, os.Remove(path))
		seconds(3)
		assert.Equal(t, "7/1m", now(s))
		assert.ErrorIs(t, s.Status().Err, fs.ErrNotExist)
		assert.Equal(t, 1, log.count("level=ERROR"))
		write(t, path, "format: 1\npolicies: {}\n")
		seconds(3)
		assert.Empty(t, s.Load().Policies)
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	followed(t, document(1), filesource.Options{}, func(t *testing.T, path string, s *filesource.Source, _ *lines) {
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		assert.ErrorContains(t, s.Reload(t.Context()), "closed")
		write(t, path, document(2))
		seconds(5)
		assert.Equal(t, "1/1m", now(s))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.Error(t, s.Reload(ctx))
	})
}

// A Set is prepared before it is shown, and what nobody uses any more is forgotten.
func TestListen(t *testing.T) {
	t.Parallel()
	followed(t, document(1), filesource.Options{}, func(t *testing.T, path string, s *filesource.Source, _ *lines) {
		var prepared []*follow.Set
		alive, calls := true, 0
		s.Listen(follow.NewFollower(nil, func(set *follow.Set) ([]follow.Entry, bool) {
			if len(prepared) > 0 {
				assert.Same(t, prepared[len(prepared)-1], s.Load(), "it is not shown before")
			}
			prepared = append(prepared, set)
			return nil, true
		}))
		s.Listen(follow.NewFollower(nil, func(*follow.Set) ([]follow.Entry, bool) {
			calls++
			return nil, alive
		}))
		assert.Equal(t, []*follow.Set{s.Load()}, prepared)
		for n := range 3 {
			write(t, path, document(n+2))
			require.NoError(t, s.Reload(t.Context()))
			assert.Same(t, s.Load(), prepared[len(prepared)-1])
			alive = false
		}
		assert.Len(t, prepared, 4)
		assert.Equal(t, 3, calls, "it is forgotten when nobody uses it any more")

		for range 2000 {
			s.Listen(follow.NewFollower(nil, func(*follow.Set) ([]follow.Entry, bool) { calls++; return nil, true }))
		}
		calls = 0
		write(t, path, document(9))
		require.NoError(t, s.Reload(t.Context()))
		assert.Equal(t, 999, calls, "a thousand, with the first one")
	})
}

// A Limiter obeys the file.
func TestLimiterFollowsAFile(t *testing.T) {
	t.Parallel()
	followed(t, document(1), filesource.Options{}, func(t *testing.T, path string, s *filesource.Source, _ *lines) {
		store, err := core.NewMemory(core.MemoryOptions{})
		require.NoError(t, err)
		l, err := enforce.New(store, core.MustParse("api: 100/1m"), enforce.Options{Source: s})
		require.NoError(t, err)
		defer l.Close()
		assert.Equal(t, "api: 1/1m", l.Policy().String())
		write(t, path, "format: 1\npolicies:\n  api:\n    text: 7/1m\n    keys:\n      user=7: blocked\n")
		seconds(3)
		assert.Equal(t, "api: 7/1m", l.Policy().String())
		res, err := l.Allow(t.Context(), "user=7")
		require.NoError(t, err)
		assert.False(t, res.Allowed())
		assert.Equal(t, time.Minute, res.RetryAfter)
		write(t, path, "format: 1\npolicies: {}\n")
		seconds(3)
		assert.Equal(t, "api: 100/1m", l.Policy().String(), "as the code says")
	})
}

// Names that nobody has are mistakes of spelling, mostly: the log has them once, at the start and after a change.
func TestNamesOfNobody(t *testing.T) {
	t.Parallel()
	const misspelt = "format: 1\npolicies:\n  api: {}\n  lgoin: {}\n"
	followed(t, misspelt, filesource.Options{}, func(t *testing.T, path string, s *filesource.Source, log *lines) {
		seconds(3)
		assert.Zero(t, log.count("look at the spelling"), "nobody follows yet")
		l, err := enforce.New(nil, core.MustParse("api: 100/1m"), enforce.Options{Source: s})
		require.NoError(t, err)
		defer l.Close()
		seconds(3)
		assert.Equal(t, 1, log.count("look at the spelling"))
		assert.Equal(t, 1, log.count("names=[lgoin] of=1"))
		write(t, path, document(2))
		seconds(5)
		assert.Equal(t, 1, log.count("look at the spelling"), "all have one")
		write(t, path, misspelt)
		seconds(5)
		assert.Equal(t, 2, log.count("look at the spelling"))
	})
}

// Readers see whole Sets, whatever happens to the file.
func TestSourceIsSafe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	both := func(n int) []byte {
		return fmt.Appendf(nil, "format: 1\npolicies:\n  a: {text: %d/1m}\n  b: {text: %d/1m}\n", n, n)
	}
	require.NoError(t, os.WriteFile(path, both(1), 0o600))
	s, err := filesource.New(path, filesource.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if set := s.Load(); set.Policies["a"] != set.Policies["b"] {
					t.Error("a mix of two files")
					return
				}
				_ = s.Status()
				runtime.Gosched()
			}
		})
	}
	for n := range 50 {
		require.NoError(t, os.WriteFile(path, both(n+1), 0o600))
		if err := s.Reload(t.Context()); err != nil {
			var mistakes policies.Mistakes
			require.True(t, errors.As(err, &mistakes), "%v", err)
		}
	}
	close(stop)
	running.Wait()
	assert.Equal(t, "50/1m", s.Load().Policies["a"])
}
