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

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/internal/race"
)

// within bounds a command that serves after all.
func within(t *testing.T, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return run(ctx, args, io.Discard, io.Discard)
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
	database := sqltest.New(t)
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"-redis", "127.0.0.1:6379"}, "redis"},
		{[]string{"-redis", "redis://anna:secret@127.0.0.1:6379"}, "-redis @FILE"},
		{[]string{"-redis", "redis://anna:secret@%zz"}, "-redis @FILE"},
		{[]string{"-redis", "@" + write(t, "")}, "empty"},
		{[]string{"-redis", "@" + filepath.Join(dir, "none")}, "none"},
		{[]string{"-db", "postgres://anna:secret@h/d"}, "-db @FILE"},
		{[]string{"-db", "postgres://h/d?user=anna&password=secret"}, "-db @FILE"},
		{[]string{"-db", "anna:secret@tcp(127.0.0.1:3306)/weir"}, "-db @FILE"},
		{[]string{"-db", "mysql:anna:secret@tcp(h)/weir"}, "-db @FILE"},
		{[]string{"-db", "anna:se/cret@unix(/run/mysqld.sock)/weir"}, "-db @FILE"},
		{[]string{"-db", "user=anna password=secret host=h"}, "-db @FILE"},
		{[]string{"-db", ":memory:"}, "memory"},
		{[]string{"-db", "oracle://x"}, "oracle"},
		{[]string{"-addr", "0.0.0.0:0"}, "-public-url"},
		{[]string{"-public-url", "http://limits.example.com"}, "https"},
		{[]string{"-public-url", "http://10.0.0.1"}, "https"},
		{[]string{"-public-url", "ftp://127.0.0.1"}, "https"},
		{[]string{"-public-url", "limits.example.com"}, "public URL"},
		{[]string{"-public-url", "https://limits.example.com/weir"}, "without"},
		{[]string{"-public-url", "https://anna@limits.example.com"}, "public URL"},
		{[]string{"-oidc-client", "weir"}, "-oidc-issuer"},
		{[]string{"-oidc-issuer", "http://login.example.com", "-oidc-client", "weir"}, "https"},
		{[]string{"-oidc-issuer", "https://login.example.com"}, "-oidc-client"},
		{[]string{"-oidc-issuer", "https://h", "-oidc-client", "weir", "-oidc-secret-file", filepath.Join(dir, "none")}, "none"},
		{[]string{"-counts", "pay=" + filepath.Join(dir, "none")}, "-counts pay"},
		{[]string{"-counts", "pay=" + write(t, "127.0.0.1:6379")}, "-counts pay"},
		{[]string{"-secret", "pay=" + filepath.Join(dir, "none")}, `prefix "pay"`},
		{[]string{"-trusted-proxies", "proxy"}, "trusted-proxies"},
		{[]string{"extra"}, "extra"},
		{[]string{"-port", "1"}, "-help"},
	} {
		args := test.args
		for flag, value := range map[string]string{"-db": database, "-addr": "127.0.0.1:0"} {
			if !slices.Contains(args, flag) {
				args = append(slices.Clip(args), flag, value)
			}
		}
		err := within(t, args...)
		require.ErrorContains(t, err, test.says, "%q", test.args)
		assert.NotContains(t, err.Error(), "secret@")
		assert.NotContains(t, err.Error(), "password=secret")
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

// Only serve and migrate make a file: any other command was given the wrong one.
func TestMissingDatabase(t *testing.T) {
	if race.Enabled {
		t.Skip("there is no SQLite with the race detector")
	}
	db := filepath.Join(t.TempDir(), "weir.db")
	for _, args := range [][]string{
		{"link", "-role", "admin", "anna"},
		{"token", "-role", "admin", "anna"},
		{"adopt", "pay"},
		{"audit", "verify"},
		{"audit", "forget", "-before", "2026-01-31", "-reason", "x"},
		{"backup", db + "-copy"},
	} {
		for _, at := range []string{db, "file://" + db, "@" + write(t, db)} {
			err := within(t, append(slices.Clip(args), "-db", at)...)
			require.ErrorContains(t, err, "there is no database", "%q", args)
			require.ErrorContains(t, err, "give -db, the one that the server has", "%q", args)
			require.NoFileExists(t, db, "%q", args)
		}
	}
	require.NoFileExists(t, db+"-copy")
	require.NoError(t, within(t, "migrate", "-db", db))
	require.NoError(t, within(t, "audit", "verify", "-db", db))
}

func TestHelp(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), []string{"-help"}, &out, io.Discard))
	for _, word := range []string{"serve", "demo", "migrate", "import", "backup"} {
		assert.Contains(t, out.String(), word)
	}
}
