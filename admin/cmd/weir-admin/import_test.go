package main

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/ratetable"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/redistest"
)

// The import shows what it would do, and with -apply does it, once; what is open is listed, and is the exit status.
func TestImport(t *testing.T) {
	server := sqltest.MariaDB(t)
	older, file := server.Database(t), server.Database(t)
	table, err := ratetable.Open(older)
	require.NoError(t, err)
	defer table.Close()
	exec := func(query string) {
		t.Helper()
		_, err := table.ExecContext(t.Context(), query)
		require.NoError(t, err)
	}
	exec(`CREATE TABLE rate_limiter_info (id int PRIMARY KEY AUTO_INCREMENT, name varchar(50) UNIQUE, apps varchar(1000),
		max_permits int, rate int, created_by varchar(50), updated_by varchar(50), created_at datetime, updated_at datetime)`)
	exec(`INSERT INTO rate_limiter_info (name, apps, max_permits, rate, created_by) VALUES
		('login', 'pay,shop', 20, 5, 'anna'), ('mail', 'pay', 10, 1, 'bob')`)

	weir := func(args ...string) (string, error) {
		var out strings.Builder
		err := run(t.Context(), append([]string{"import", "-db", file, "-dsn", older, "-owner", "pay"}, args...), &out, io.Discard)
		return out.String(), err
	}
	read := func(name string) (policies.Policy, error) {
		p, _, err := recordtest.Open(t, file).Policy(t.Context(), "pay", name)
		return p, err
	}
	out, err := weir()
	require.NoError(t, err)
	assert.Contains(t, out, "login: 5/1s burst 20 token-bucket, also for shop (row 1)\n")
	assert.Contains(t, out, "2 policies of 2 rows would be written; -apply writes them; 0 doubts\n")
	_, err = read("login")
	require.Error(t, err, "it was a plan")
	kept, err := recordtest.Open(t, file).Imports(t.Context())
	require.NoError(t, err)
	assert.Empty(t, kept, "it was a plan")

	out, err = weir("-apply")
	require.NoError(t, err)
	assert.Contains(t, out, "2 policies of 2 rows are written")
	p, err := read("login")
	require.NoError(t, err)
	assert.Equal(t, policies.Policy{Text: "5/1s burst 20 token-bucket", Apps: []string{"shop"}}, p)
	out, err = weir("-apply")
	require.NoError(t, err)
	assert.Contains(t, out, "0 policies of 2 rows are written", "once")

	// What has changed in the table since, what others own, and what is not clear is left out.
	exec(`UPDATE rate_limiter_info SET rate = 7 WHERE name = 'mail'`)
	exec(`INSERT INTO rate_limiter_info (name, apps, max_permits, rate, created_by) VALUES
		('sms', 'pay', 3, 0, 'bob'), ('export', 'pay', 3, 3, NULL)`)
	out, err = weir("-apply")
	require.ErrorIs(t, err, status(found))
	assert.Contains(t, out, `row 2, "mail": left out: the record has "mail"`)
	assert.Contains(t, out, `row 3, "sms": left out: rate is 0`)
	assert.Contains(t, out, `row 4, "export": nobody stands in created_by`)
	assert.Contains(t, out, "1 policies of 2 rows are written; 3 doubts\n")
	p, err = read("mail")
	require.NoError(t, err)
	assert.Equal(t, "1/1s burst 10 token-bucket", p.Text)
	_, err = read("export")
	require.NoError(t, err)
	showsImports(t, file)

	require.ErrorContains(t, within(t, "import", "-db", file, "-dsn", "mysql://anna:secret@h/d", "-owner", "pay"), "-dsn @FILE")
	require.ErrorContains(t, within(t, "import", "-db", file, "-dsn", older, "-owner", "no app"), "owner")
	require.ErrorContains(t, within(t, "import", "-db", file, "-dsn", filepath.Join(t.TempDir(), "x"), "-owner", "pay"), "mysql://")
}

// showsImports looks at the reports of the imports of TestImport in a server: by the API, and on the page.
func showsImports(t *testing.T, db string) {
	t.Helper()
	server := startServer(t, "-db", db, "-redis", "redis://"+redistest.Single(t).Addr())
	get := func(role, path string) (int, string) {
		t.Helper()
		var token strings.Builder
		require.NoError(t, run(t.Context(), []string{"token", "-db", db, "-role", role, role}, &token, io.Discard))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.url+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token.String()))
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	status, _ := get("owner", "/v1/imports")
	assert.Equal(t, http.StatusForbidden, status)
	status, body := get("admin", "/v1/imports")
	require.Equal(t, http.StatusOK, status, body)
	var all manage.Imports
	require.NoError(t, json.Unmarshal([]byte(body), &all))
	require.Len(t, all.Imports, 3, "one of each -apply")
	last := all.Imports[0]
	assert.Regexp(t, `^(mysql|mariadb)://localhost/t\d+$`, last.From)
	assert.Equal(t, []any{"console", "pay", "import of rate_limiter_info", 4, 1, 1, 3},
		[]any{last.Person, last.App, last.Reason, last.Rows, last.Written, last.Held, last.Doubted})
	assert.Equal(t, []manage.ImportedRow{{Row: 4, Name: "export", Text: "3/1s burst 3 token-bucket"}}, last.Taken)
	require.Len(t, last.Doubts, 3)
	assert.Equal(t, manage.ImportedRow{Row: 4, Name: "export", Why: "nobody stands in created_by, so that it is not known who answers for it"},
		last.Doubts[1])
	assert.True(t, last.Doubts[0].LeftOut && last.Doubts[2].LeftOut)
	assert.Equal(t, []int{2, 0, 0}, []int{all.Imports[2].Written, all.Imports[2].Held, all.Imports[2].Doubted})
	assert.Equal(t, []int{0, 2, 0}, []int{all.Imports[1].Written, all.Imports[1].Held, all.Imports[1].Doubted})

	_, page := get("admin", "/settings")
	for _, text := range []string{"4 rows: 1 written, 1 there already, 3 doubts", "2 rows: 2 written", "left out: rate is 0", last.From} {
		assert.Contains(t, page, text)
	}
	_, page = get("owner", "/settings")
	assert.NotContains(t, page, "Imports")
}
