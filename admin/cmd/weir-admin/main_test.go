package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/race"
)

// within bounds a command that serves after all.
func within(t *testing.T, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return run(ctx, args, io.Discard)
}

// write writes a file, and returns its name.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// A program that cannot serve says why, and what to do.
func TestRefusesToStart(t *testing.T) {
	dir := t.TempDir()
	good := []string{"-token-file", write(t, "anna:0123456789abcdefghij\n")}
	for _, test := range []struct {
		args []string
		says string
	}{
		{nil, "-token-file"},
		{[]string{"-token-file", filepath.Join(dir, "none")}, "none"},
		{[]string{"-token-file", write(t, "anna:short\n")}, "line 1"},
		{[]string{"-token-file", write(t, "# nobody\n")}, "no tokens"},
		{append(good, "-redis", "127.0.0.1:6379"), "redis"},
		{append(good, "-redis", "redis://anna:secret@127.0.0.1:6379"), "-redis @FILE"},
		{append(good, "-redis", "redis://anna:secret@%zz"), "-redis @FILE"},
		{append(good, "-redis", "@"+write(t, "")), "empty"},
		{append(good, "-redis", "@"+filepath.Join(dir, "none")), "none"},
		{append(good, "-db", "postgres://anna:secret@h/d"), "-db @FILE"},
		{append(good, "-db", "postgres://h/d?user=anna&password=secret"), "-db @FILE"},
		{append(good, "-db", ":memory:"), "memory"},
		{append(good, "-db", "oracle://x"), "oracle"},
		{append(good, "-addr", "0.0.0.0:0"), "-public-url"},
		{append(good, "-public-url", "http://limits.example.com"), "https"},
		{append(good, "-public-url", "http://10.0.0.1"), "https"},
		{append(good, "-public-url", "https://limits.example.com/weir"), "host alone"},
		{append(good, "-public-url", "https://anna:secret@limits.example.com"), "host alone"},
		{append(good, "extra"), "extra"},
		{append(good, "-port", "1"), "-help"},
	} {
		args := test.args
		for flag, value := range map[string]string{"-db": filepath.Join(dir, "weir.db"), "-addr": "127.0.0.1:0"} {
			if !strings.Contains(strings.Join(args, " "), flag+" ") {
				args = append(slices.Clip(args), flag, value)
			}
		}
		err := within(t, args...)
		require.ErrorContains(t, err, test.says, "%q", test.args)
		assert.NotContains(t, err.Error(), "secret@")
	}
}

// A database is made and copied; a file that is there is not written over.
func TestMigrateAndBackup(t *testing.T) {
	if race.Enabled {
		t.Skip("there is no SQLite with the race detector")
	}
	dir := t.TempDir()
	db, copied := filepath.Join(dir, "weir.db"), filepath.Join(dir, "copy.db")
	require.NoError(t, within(t, "migrate", "-db", db))
	require.NoError(t, within(t, "backup", "-db", db, copied))
	require.NoError(t, within(t, "migrate", "-db", copied), "the copy is a database")
	require.Error(t, within(t, "backup", "-db", db, copied))
}

func TestHelp(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), []string{"-help"}, &out))
	for _, word := range []string{"serve", "demo", "migrate", "import", "backup"} {
		assert.Contains(t, out.String(), word)
	}
}
