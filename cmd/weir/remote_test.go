package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/redistest"
)

// admin is a weir-admin on a database and a Redis that the test has for itself.
type admin struct {
	redis *redistest.Server
	env   []string // for weir
}

var serving = regexp.MustCompile(`weir-admin: serving"? address=(\S+)`)

func startAdmin(t *testing.T) *admin {
	t.Helper()
	server := redistest.Single(t)
	token, db, program := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "weir.db"), filepath.Join(programs, "weir-admin")
	require.NoError(t, exec.CommandContext(t.Context(), program, "migrate", "-db", db).Run())
	// It is the first change, with the revision 1.
	secret, err := exec.CommandContext(t.Context(), program, "token", "-db", db, "-role", "admin", "anna").Output()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(token, append([]byte("# of anna\n\n"), secret...), 0o600))
	cmd := exec.Command(program, "-db", db, "-redis", "redis://"+server.Addr(), "-addr", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var log strings.Builder
	var reading sync.WaitGroup
	address := make(chan string, 1)
	reading.Go(func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
			if m := serving.FindStringSubmatch(lines.Text()); m != nil {
				address <- m[1]
			}
		}
		close(address)
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		reading.Wait()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("weir-admin:\n%s", log.String())
		}
	})
	select {
	case at, ok := <-address:
		require.True(t, ok, "weir-admin has ended")
		return &admin{server, []string{"WEIR_SERVER=http://" + at, "WEIR_TOKEN_FILE=" + token}}
	case <-time.After(patience):
		require.Fail(t, "weir-admin does not serve")
		return nil
	}
}

// client returns a client with the token of the admin.
func (a *admin) client(t *testing.T) *adminapi.Client {
	t.Helper()
	token, err := os.ReadFile(strings.TrimPrefix(a.env[1], "WEIR_TOKEN_FILE="))
	require.NoError(t, err)
	lines := strings.Fields(string(token))
	return &adminapi.Client{URL: strings.TrimPrefix(a.env[0], "WEIR_SERVER="), Token: lines[len(lines)-1]}
}

// weir runs the program, which must end with a status.
func (a *admin) weir(t *testing.T, code int, args ...string) string {
	t.Helper()
	r := weir(t, a.env, args...)
	require.Equal(t, code, r.code, "weir %q: %s%s", args, r.out, r.err)
	if code == failed {
		return r.err
	}
	return r.out
}

// The way of a limit: written in a file, compared, applied, seen in the history, and taken back.
func TestApply(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	path := file(t, good)

	out := a.weir(t, different, "apply", "-dry-run", path)
	assert.Contains(t, out, "api: (none) -> 200/1m; shadow\napi, tier pro: (none) -> 5000/1m\nlogin: (none) -> 5/1m\n")
	assert.Contains(t, out, "2 policies would change")
	assert.Contains(t, a.weir(t, failed, "get", "pay"), "404", "nothing was written")

	out = a.weir(t, 0, "apply", "-reason", "the first day", path)
	assert.Contains(t, out, "api: (none) -> 200/1m; shadow")
	assert.Contains(t, out, "published")
	assert.Contains(t, a.weir(t, 0, "apply", "-dry-run", path), "no difference")
	assert.Contains(t, a.weir(t, 0, "apply", path), "no difference")

	got := a.weir(t, 0, "get", "pay")
	assert.Contains(t, got, "app: pay\ngeneration: 1\nrevision: 2\n")
	assert.Contains(t, got, "  api:\n    text: 200/1m; shadow\n    tiers:\n      pro: 5000/1m\n")
	assert.Equal(t, got, a.weir(t, 0, "get", "-published", "pay"))
	assert.Contains(t, a.weir(t, 0, "get"), "pay  1.2")
	assert.Contains(t, a.weir(t, 0, "get", "pay", "login"), "# revision 2\nformat: 1\napp: pay\npolicies:\n  login:\n    text: 5/1m\n")

	// What was got may be edited and applied, unless somebody else was faster.
	edited := file(t, strings.Replace(got, "200/1m; shadow", "300/1m", 1))
	assert.Contains(t, a.weir(t, 0, "apply", edited), "api: 200/1m; shadow -> 300/1m\n")
	err := a.weir(t, failed, "apply", edited)
	assert.Contains(t, err, "412")
	assert.Contains(t, err, "the policies have changed since revision 2; read them again")

	// What the file leaves out stays, unless it is to be pruned.
	less := file(t, "format: 1\napp: pay\npolicies:\n  api: {text: 300/1m, tiers: {pro: 5000/1m}}\n")
	assert.Contains(t, a.weir(t, 0, "apply", "-dry-run", less), "no difference")
	assert.Contains(t, a.weir(t, different, "apply", "-dry-run", "-prune", less), "login: deleted; the code's numbers hold")
	assert.Contains(t, a.weir(t, 0, "apply", "-prune", less), "login: deleted")
	assert.Contains(t, a.weir(t, failed, "get", "pay", "login"), "404")

	out = a.weir(t, 0, "history", "pay", "api")
	assert.Regexp(t, `3 +\S+ \S+ +anna, token cli +apply +300/1m, 1 tier +weir apply policies.yaml\n`, out)
	assert.Regexp(t, `2 +\S+ \S+ +anna, token cli +apply +200/1m; shadow, 1 tier +the first day\n`, out)
	var history adminapi.History
	require.NoError(t, json.Unmarshal([]byte(a.weir(t, 0, "history", "-json", "-limit", "1", "pay", "api")), &history))
	require.Len(t, history.Versions, 1)
	assert.Equal(t, "300/1m", history.Versions[0].Policy.Text)
	assert.Contains(t, a.weir(t, failed, "history", "pay", "other"), `no version of the policy "other" of the app "pay"; weir get pay lists its policies`)

	out = a.weir(t, 0, "rollback", "-reason", "customers complain", "pay", "api", "2")
	assert.Contains(t, out, "api: 300/1m -> 200/1m; shadow")
	assert.Contains(t, a.weir(t, 0, "history", "pay", "api"), "customers complain")
	assert.Contains(t, a.weir(t, failed, "rollback", "pay", "api", "77"), "404")

	// What nobody could use is refused, with the reason.
	other := file(t, "format: 1\napp: pay\npolicies:\n  api: {text: 300/1m fixed-window}\n")
	assert.Contains(t, a.weir(t, failed, "apply", other), "422")
	assert.Contains(t, a.weir(t, 0, "apply", "-force", other), "api: 200/1m; shadow -> 300/1m fixed-window")
	var written adminapi.Written
	back := file(t, "format: 1\npolicies:\n  api: {text: 300/1m}\n")
	require.NoError(t, json.Unmarshal([]byte(a.weir(t, 0, "apply", "-json", "-force", "-app", "pay", back)), &written))
	assert.Equal(t, "pay", written.App)
	assert.True(t, written.Published)
	require.Len(t, written.Differences, 1)
	assert.True(t, written.Differences[0].Afresh)

	unknown := file(t, "format: 1\napp: nobody\ngeneration: 1\nrevision: 9\npolicies:\n  api: {text: 300/1m}\n")
	assert.Contains(t, a.weir(t, failed, "apply", unknown), "revision 9 of the app was expected, which the record does not know")
	assert.Contains(t, a.weir(t, failed, "apply", back), "the file has no app; give -app")
	assert.Contains(t, a.weir(t, failed, "apply", "-app", "shop", less), `the file is for the app "pay", and -app is "shop"`)
	assert.Contains(t, a.weir(t, failed, "apply", file(t, "format: 1\napp: pay\npolicies:\n  api: {text: 5/1x}\n")), `:4:15: policies.api.text: "5/1x"`)
}

// Where an app asks for another owner, a rollback waits for one, unless it is an emergency.
func TestRollbackInAnEmergency(t *testing.T) {
	a := startAdmin(t)
	client := a.client(t)
	for i, text := range []string{"1/1m", "2/1m"} {
		_, err := client.Put(t.Context(), "pay", "api", policies.Policy{Text: text}, adminapi.Write{Create: i == 0, Reason: "a test"})
		require.NoError(t, err)
	}
	_, err := client.PutApp(t.Context(), "pay", adminapi.Settings{FourEyes: true}, adminapi.Write{Create: true, Reason: "a test"})
	require.NoError(t, err)
	past, err := client.History(t.Context(), "pay", "api", 0, 0)
	require.NoError(t, err)
	require.Len(t, past, 2)
	before := strconv.FormatInt(past[1].Revision, 10)
	holds := func() string {
		held, err := client.Policy(t.Context(), "pay", "api")
		require.NoError(t, err)
		return held.Policy.Text
	}
	assert.Contains(t, a.weir(t, 0, "rollback", "pay", "api", before), "another owner has to approve proposal")
	assert.Equal(t, "2/1m", holds())
	a.weir(t, 0, "rollback", "-emergency", "pay", "api", before)
	assert.Equal(t, "1/1m", holds())
}

// A policy may be used by further apps, and those of * by all that the record knows; an app's own goes before both. The
// file that get writes for apply has only what the app owns.
func TestSharedPolicies(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	a.weir(t, 0, "apply", file(t, "format: 1\napp: shop\npolicies:\n  cart: {text: 5/1m, apps: [pay]}\n  own: {text: 1/1m}\n"))
	assert.Contains(t, a.weir(t, 0, "apply", file(t, "format: 1\napp: '*'\npolicies:\n  all: {text: 7/1m}\n  own: {text: 9/1m}\n")),
		"* 1.3: written; it is published to each app")
	until(t, func() bool { return strings.Contains(a.weir(t, 0, "get", "-published", "pay"), "all:") })
	pay := a.weir(t, 0, "get", "-published", "pay")
	for _, text := range []string{"  all:\n    text: 7/1m\n", "  cart:\n    text: 5/1m\n", "  own:\n    text: 9/1m\n"} {
		assert.Contains(t, pay, text)
	}
	assert.NotContains(t, pay, "apps")
	assert.Contains(t, a.weir(t, 0, "get", "-published", "shop"), "  own:\n    text: 1/1m\n")
	shop := a.weir(t, 0, "get", "shop")
	assert.NotContains(t, shop, "all:")
	assert.Contains(t, shop, "  cart:\n    text: 5/1m\n    apps: [pay]\n")
	assert.Contains(t, a.weir(t, 0, "apply", "-prune", file(t, shop)), "no difference")
	assert.Contains(t, a.weir(t, 0, "get", "*"), "  all:\n    text: 7/1m\n")
	assert.Contains(t, a.weir(t, 0, "get", "pay"), "policies: {}")
	assert.Contains(t, a.weir(t, failed, "apply", file(t, "format: 1\napp: pay\npolicies:\n  cart: {text: 6/1m}\n")), "409")
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.weir(t, 0, "get", "-json", "shop")), &document))
	assert.Equal(t, "shop", document["app"])
}

// Which processes obey what, and an alarm that somebody has to look at.
func TestServicesAndAdopt(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	assert.Contains(t, a.weir(t, 0, "services"), "the record knows no app yet; weir services APP ")
	assert.Contains(t, a.weir(t, 0, "apply", file(t, good)), "warning: no process has a policy named api, login; weir services pay lists ")
	rdb := a.redis.Client(t)
	source, err := redissource.New(rdb, "pay", redissource.Options{Name: "box \x1b[31m1", Every: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, source.Close()) })
	store, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	limiters := make([]*enforce.Limiter, 0, 3)
	for _, text := range []string{"api: 100/1m", "login: 3/1m sliding-log", "mail: 9/1m"} {
		l, err := enforce.New(store, core.MustParse(text), enforce.Options{Source: source})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, l.Close()) })
		limiters = append(limiters, l)
	}
	require.NoError(t, source.Ready(t.Context()))
	until(t, func() bool { return limiters[0].Policy().String() == "api: 200/1m; shadow" })

	var s adminapi.Services
	until(t, func() bool {
		s = adminapi.Services{}
		require.NoError(t, json.Unmarshal([]byte(a.weir(t, 0, "services", "-json", "pay")), &s))
		return len(s.Processes) == 1 && !s.Processes[0].Behind && len(s.Processes[0].Rules) == 3
	})
	words := map[string]policies.Meaning{}
	for _, r := range s.Processes[0].Rules {
		words[r.Policy] = r.Meaning
	}
	assert.Equal(t, map[string]policies.Meaning{"api": policies.Trial, "login": policies.Unusable, "mail": policies.Code}, words)
	out := a.weir(t, 0, "services", "pay")
	assert.Contains(t, out, "pay 1.2: 1 process, 1 of them with this version\n")
	assert.Contains(t, out, `"box \x1b[31m1"  1.2`)
	assert.Regexp(t, `trial +api .*200/1m; shadow`, out)
	assert.Regexp(t, `unusable +login `, out)
	assert.Regexp(t, `code +mail .*9/1m`, out)
	assert.Contains(t, a.weir(t, 0, "services"), "pay 1.2: 1 process")
	assert.Contains(t, a.weir(t, failed, "services", "nobody"), "404")
	const warning = "warning: no process has a policy named mial; "
	misspelt := file(t, strings.Replace(good, "login:", "mial:", 1))
	assert.Contains(t, a.weir(t, different, "apply", "-dry-run", misspelt), warning)
	assert.NotContains(t, out, "warning")

	// Somebody restores an old backup of the record: Redis is ahead of it.
	document, err := (&policies.Document{
		App: "pay", Version: policies.Version{Generation: 1, Revision: 500}, Policies: map[string]policies.Policy{"api": {Text: "7/1m"}},
	}).Encode()
	require.NoError(t, err)
	write(t, rdb, document, "500")
	until(t, func() bool { return strings.Contains(weir(t, a.env, "get").out, "alarm: ") })
	assert.Contains(t, a.weir(t, alarmed, "get"), "alarm: ")
	assert.Contains(t, a.weir(t, alarmed, "get", "pay"), "# not published: ")
	assert.Contains(t, a.weir(t, alarmed, "apply", file(t, strings.Replace(good, "5000/1m", "6000/1m", 1))), "not published: ")
	until(t, func() bool { return limiters[0].Policy().String() == "api: 7/1m" }) // as Redis says

	assert.Contains(t, a.weir(t, 0, "adopt", "-reason", "the backup of Monday", "pay"), "pay 2.")
	until(t, func() bool { return limiters[0].Policy().String() == "api: 200/1m; shadow" })
	assert.Contains(t, a.weir(t, 0, "get"), "pay  2.")
}

// A change is written while Redis is gone, and published later.
func TestApplyWithoutRedis(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	a.redis.Kill()
	assert.Contains(t, a.weir(t, 0, "apply", file(t, good)), "written; it will be published as soon as Redis answers")
	assert.Contains(t, a.weir(t, 0, "get"), "not yet")
	a.redis.Restart(t)
	until(t, func() bool { return strings.Contains(a.weir(t, 0, "get"), "yes") })
}

// write writes a document into Redis past the record.
func write(t *testing.T, rdb *redis.Client, document []byte, revision string) {
	t.Helper()
	require.NoError(t, rdb.HSet(t.Context(), redissource.Key("pay"), redissource.FieldGeneration, "1", redissource.FieldRevision, revision,
		redissource.FieldDigest, policies.Digest(document), redissource.FieldDocument, document).Err())
}

// until waits for a condition.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, 50*time.Millisecond)
}
