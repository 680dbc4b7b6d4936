package page_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/page"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/internal/adminapi"
)

func get(t *testing.T, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func post(t *testing.T, h http.Handler, path string, fields ...string) *httptest.ResponseRecorder {
	t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func fixed() time.Time { return time.Date(2026, 11, 23, 3, 4, 5, 0, time.UTC) }

// The script in the tree is the one that npm has.
func TestHtmxIsPinned(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("static/htmx.min.js")
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	assert.Equal(t, "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130", hex.EncodeToString(sum[:]),
		"of htmx.org 4.0.1, dist/htmx.min.js")
	assert.Contains(t, string(data), `"4.0.1"`)
}

// Every answer has all the headers, whatever it is.
func TestHeaders(t *testing.T) {
	t.Parallel()
	h := serve(t, newFake(fixed), owner)
	answers := map[string]*httptest.ResponseRecorder{
		"home": get(t, h, "/"), "nothing": get(t, h, "/nothing"), "another method": post(t, h, "/apps/pay"),
		"moved": post(t, h, "/search", "text", "webhooks"), "fragment": get(t, h, "/", "Hx-Request", "true"),
		"hidden": get(t, h, "/apps/none"), "no form": post(t, h, "/apps/pay/policies/search/write"),
	}
	for name, w := range answers {
		assert.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'", w.Header().Get("Content-Security-Policy"), name)
		for header, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cache-Control": "no-store", "Strict-Transport-Security": "max-age=31536000",
		} {
			assert.Equal(t, value, w.Header().Get(header), "%s: %s", name, header)
		}
	}
}

// No template has what the policy of the pages forbids, and what would need eval.
func TestNothingInline(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`(?i)\sstyle=|<style|\son[a-z]+=|javascript:|hx-on|hx-vals|js:|hx-trigger="[^"]*\[|<script(?: [^>]*)?>[^<]`)
	entries, err := os.ReadDir("templates")
	require.NoError(t, err)
	for _, entry := range entries {
		data, err := os.ReadFile("templates/" + entry.Name())
		require.NoError(t, err)
		assert.Empty(t, forbidden.FindAllString(string(data), -1), entry.Name())
	}
}

func TestHomeSaysTheWorstFirst(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	h := serve(t, f, owner)
	text := get(t, h, "/").Body.String()
	assert.Contains(t, text, "2 apps need a look")
	order := regexp.MustCompile(`<a href="/apps/(\w+)">`).FindAllStringSubmatch(text, -1)
	require.Len(t, order, 4)
	assert.Equal(t, []string{"pay", "shop", "reports", "billing"}, []string{order[0][1], order[1][1], order[2][1], order[3][1]})

	for i := range f.apps {
		f.apps[i].Health = &manage.Health{Processes: 2}
	}
	text = get(t, h, "/").Body.String()
	assert.Contains(t, text, "Everything is obeyed")
	assert.NotContains(t, text, `class="mark bad"`)
}

// Where nobody speaks, nobody obeys: perhaps the processes are in another Redis.
func TestHomeWithoutProcesses(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	h := serve(t, f, owner)
	for i := range f.apps {
		f.apps[i].Health = &manage.Health{}
	}
	text := get(t, h, "/").Body.String()
	assert.Contains(t, text, "<h1>No process has been heard in the last minute</h1>")
	assert.NotContains(t, text, "Everything is obeyed")
	f.apps[0].Health.Processes = 1
	assert.Contains(t, get(t, h, "/").Body.String(), "Everything is obeyed")
}

// The first admin finds the way to the first app, and those who may not add one are not shown it.
func TestHomeWithoutApps(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	f.apps = nil
	text := get(t, serve(t, f, &rights.Person{ID: "local:anna", Admin: true}), "/").Body.String()
	assert.Contains(t, text, `<a class="button first" href="/settings">Add an app</a>`)
	assert.Contains(t, text, "redissource.New(rdb, NAME, ...)")
	assert.NotContains(t, get(t, serve(t, f, owner), "/").Body.String(), "Add an app")
}

// The screen of a key promises only what is known, and calls nobody refused whom a policy on trial lets pass.
func TestKeyVerdicts(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	h := serve(t, f, owner)
	of := func(outcome core.Outcome, shadow bool) manage.Look {
		return manage.Look{Policy: "search", Left: 40, Of: 50, Explanation: &explain.Explanation{
			Policy: "50/1m", Shadow: shadow, Result: core.Result{Outcome: outcome, Limit: 50},
		}}
	}
	unknown := manage.Look{Policy: "login", Why: "Redis does not answer"}
	for _, c := range []struct {
		looks          []manage.Look
		verdict, badge string
	}{
		{[]manage.Look{unknown, unknown}, "It is not known what is counted", "not known"},
		{[]manage.Look{of(core.Admitted, false), unknown}, "Admitted as far as is known: 1 policy could not be read", "admitted"},
		{[]manage.Look{of(core.Refused, false), unknown}, "Refused by 1 policy", "refused"},
		{[]manage.Look{of(core.Refused, true)}, "The next request is admitted", "on trial: would be refused"},
		{[]manage.Look{of(core.Admitted, false)}, "The next request is admitted", "admitted"},
	} {
		f.looks = c.looks
		text := post(t, h, "/apps/pay/key", "key", "user=7").Body.String()
		assert.Contains(t, text, "<h1>"+c.verdict+"</h1>")
		assert.Contains(t, text, "</svg>"+c.badge+"</span>")
	}
}

// A screen that has not changed is not sent again, and one that has is.
func TestLive(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	h := serve(t, f, owner)
	live := regexp.MustCompile(`hx-get="([^"]*)"`)
	for _, path := range []string{"/", "/apps/pay", "/apps/pay/policies/search"} {
		again := strings.ReplaceAll(live.FindStringSubmatch(get(t, h, path).Body.String())[1], "&amp;", "&")
		w := get(t, h, again, "Hx-Request", "true")
		assert.Equal(t, http.StatusNoContent, w.Code, again)
		assert.Empty(t, w.Body.String())
	}
	again := strings.ReplaceAll(live.FindStringSubmatch(get(t, h, "/apps/pay/policies/search").Body.String())[1], "&amp;", "&")
	w := post(t, h, "/apps/pay/policies/search/write", "what", "put", "text", "70/1m", "revision", "4", "reason", "attack")
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body.String())
	text := get(t, h, again, "Hx-Request", "true").Body.String()
	assert.Contains(t, text, "anna has changed this policy since you opened it")
	assert.NotContains(t, text, "<html")
}

// A policy that the record does not have leads to the limits of the code, if it is one of those.
func TestPolicyOfTheCode(t *testing.T) {
	t.Parallel()
	h := serve(t, newFake(fixed), owner)
	w := get(t, h, "/apps/pay/policies/export")
	assert.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "/apps/pay#code", w.Header().Get("Location"))
	assert.Equal(t, http.StatusNotFound, get(t, h, "/apps/pay/policies/none").Code)
}

// What was typed by somebody whom another has overtaken is kept, beside both versions.
func TestStaleForm(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	h := serve(t, f, owner)
	first := post(t, h, "/apps/pay/policies/search/write", "what", "put", "text", "70/1m", "revision", "4", "reason", "attack")
	require.Equal(t, http.StatusSeeOther, first.Code)
	for _, path := range []string{"review", "write"} {
		w := post(t, h, "/apps/pay/policies/search/"+path, "what", "put", "text", "65/1m burst 9", "tiers", "gold: 9/1s", "keys",
			"user=9: blocked", "apps", "billing", "revision", "4", "reason", "maintenance")
		assert.Equal(t, http.StatusOK, w.Code, "or else the browser writes a line in the console")
		text := w.Body.String()
		for _, typed := range []string{`value="65/1m burst 9"`, ">gold: 9/1s<", ">user=9: blocked<", `value="billing"`} {
			assert.Contains(t, text, typed, path)
		}
		assert.Contains(t, text, "now revision 6 holds")
		assert.Contains(t, text, `name="revision" value="6"`, "so that it can be sent again")
		assert.Regexp(t, `class="plus"[^\n]*70/1m`, text, "theirs")
		assert.Regexp(t, `class="plus"[^\n]*65/1m burst 9`, text, "yours")
	}
	assert.Len(t, f.writes, 1)
}

// Somebody who wanted to delete a policy or to go back has typed nothing that could be held against the version of now.
func TestStaleButton(t *testing.T) {
	t.Parallel()
	for _, what := range [][]string{{"what", "delete"}, {"what", "rollback", "to", "2"}} {
		f := newFake(fixed)
		h := serve(t, f, owner)
		first := post(t, h, "/apps/pay/policies/search/write", "what", "put", "text", "70/1m", "revision", "4", "reason", "attack")
		require.Equal(t, http.StatusSeeOther, first.Code)
		fields := append([]string{"revision", "4", "reason", "attack"}, what...)
		text := post(t, h, "/apps/pay/policies/search/write", fields...).Body.String()
		assert.Contains(t, text, "Nothing was written. Below you see what holds now")
		assert.Contains(t, text, `name="text" class="code" value="70/1m"`, "not an empty text, which would be published")
		assert.Contains(t, text, `name="revision" value="6"`)
		f.refuse = problem(http.StatusConflict, "a process cannot use it")
		text = post(t, h, "/apps/pay/policies/search/write", append(fields, "revision", "6")...).Body.String()
		assert.Contains(t, text, "a process cannot use it")
		assert.Contains(t, text, `name="text" class="code" value="70/1m"`)
		assert.Len(t, f.writes, 1)
	}
}

// The reason of whoever chooses none is true, and no reason for an emergency.
func TestNoReason(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	f.settings.FourEyes = true
	h := serve(t, f, owner)
	first := regexp.MustCompile(`name="reason">\s*<option>([^<]*)<`)
	review := post(t, h, "/apps/pay/policies/search/review", "what", "put", "text", "70/1m", "revision", "4").Body.String()
	for _, text := range []string{review, get(t, h, "/apps/pay/policies/search").Body.String(), get(t, h, "/settings/apps/pay").Body.String()} {
		found := first.FindStringSubmatch(text)
		require.NotNil(t, found)
		assert.Equal(t, "no reason given", found[1])
	}
	change := []string{"what", "put", "text", "70/1m", "revision", "4", "reason", "no reason given"}
	text := post(t, h, "/apps/pay/policies/search/write", append(change, "emergency", "true")...).Body.String()
	assert.Empty(t, f.writes)
	assert.Contains(t, text, "reason")
	assert.Contains(t, text, `value="70/1m"`, "what was typed is kept")
	w := post(t, h, "/apps/pay/policies/search/write", append(change, "emergency", "true", "words", "they are  down")...)
	assert.Equal(t, http.StatusSeeOther, w.Code)
	change[5] = "6"
	post(t, h, "/apps/pay/policies/search/write", change...)
	require.Len(t, f.writes, 2)
	assert.Equal(t, "they are down", f.writes[0].Reason)
	assert.Equal(t, "no reason given", f.writes[1].Reason)
}

// A change that was just written is not called disobeyed before processes can have followed it, and then it is.
func TestWrittenJustNow(t *testing.T) {
	t.Parallel()
	now := fixed()
	h := serve(t, newFake(func() time.Time { return now }), owner)
	w := post(t, h, "/apps/pay/policies/login/write", "what", "put", "text", "9/1m", "revision", "3", "reason", "attack")
	require.Equal(t, http.StatusSeeOther, w.Code)
	text := get(t, h, w.Header().Get("Location")).Body.String()
	assert.Contains(t, text, "Written as revision 6")
	assert.Contains(t, text, "2 of 3 rules obey it: the rest follows within seconds.")
	assert.NotContains(t, text, "not obey it yet")
	live := strings.ReplaceAll(regexp.MustCompile(`hx-get="([^"]*)"`).FindStringSubmatch(text)[1], "&amp;", "&")
	now = now.Add(soonest)
	text = get(t, h, live, "Hx-Request", "true").Body.String()
	assert.Contains(t, text, "Written as revision 6", "it stays until somebody goes on")
	assert.Contains(t, text, "1 rule does not obey it yet")
	post(t, h, "/apps/pay/policies/login/write", "what", "put", "text", "8/1m", "revision", "6", "reason", "attack")
	assert.NotContains(t, get(t, h, live, "Hx-Request", "true").Body.String(), "Written as revision", "another holds")
}

// soonest is later than any process takes to follow.
const soonest = 10 * time.Second

// Numbers leave what a key has used: the screen says why it is still refused.
func TestNumbersOfAKeyThatIsRefused(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	h := serve(t, f, owner)
	fields := []string{"key", "user=7", "policy", "search", "revision", "4", "text", "90/1m", "end", "1d", "reason", "attack"}
	text := post(t, h, "/apps/pay/key/numbers", fields...).Body.String()
	assert.Empty(t, f.writes, "nothing is written before it was seen")
	assert.Contains(t, text, "user=7: 90/1m until 2026-11-24 03:04 UTC")
	const why = "search still refuses it for a while: give the whole limit back"
	assert.NotContains(t, text, why)
	assert.Contains(t, post(t, h, "/apps/pay/key/numbers", append(fields, "what", "write")...).Body.String(), why)
	assert.Len(t, f.writes, 1)
	assert.NotContains(t, post(t, h, "/apps/pay/key/reset", "key", "user=7", "policy", "search", "reason", "attack").Body.String(), why)
}

// A review writes nothing.
func TestReviewWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	h := serve(t, f, owner)
	for _, fields := range [][]string{
		{"what", "put", "text", "70/1m", "revision", "4"},
		{"what", "delete", "revision", "4"},
		{"what", "rollback", "to", "2", "revision", "4"},
	} {
		w := post(t, h, "/apps/pay/policies/search/review", fields...)
		assert.Equal(t, http.StatusOK, w.Code, fields)
		assert.Contains(t, w.Body.String(), "Nothing is written yet", fields)
		assert.Contains(t, w.Body.String(), `class="minus"`, fields)
	}
	typed := post(t, h, "/apps/pay/policies/search/review", "what", "put", "text", "70/1m", "revision", "4", "look", "user=31 user=32")
	assert.Contains(t, typed.Body.String(), `<span class="code">user=31</span>`)
	assert.Contains(t, typed.Body.String(), `<span class="code">user=32</span>`)
	w := post(t, h, "/apps/pay/policies/export/review", "what", "take-over")
	assert.Contains(t, w.Body.String(), "10/1m")
	assert.Contains(t, w.Body.String(), "tier pro: 90/1m")
	f.code[0].Texts = []string{"10/1m", "20/1m"}
	w = post(t, h, "/apps/pay/policies/export/review", "what", "take-over")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), "processes have different texts")
	assert.Empty(t, f.writes)
}

// The two things for which somebody is called at night take one text and two clicks.
func TestJourneys(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	h := serve(t, f, owner)

	w := post(t, h, "/search", "text", "user=7")
	require.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), "Refused by 1 policy")
	w = post(t, h, "/apps/pay/key/reset", "key", "user=7", "policy", "search", "reason", "customer complains", "words", "ticket 12")
	assert.Contains(t, w.Body.String(), "Admitted as far as is known: 1 policy could not be read")
	require.Len(t, f.writes, 1)
	assert.Equal(t, "customer complains: ticket 12", f.writes[0].Reason)

	w = post(t, h, "/search", "text", "search")
	require.Equal(t, http.StatusSeeOther, w.Code)
	text := get(t, h, w.Header().Get("Location")).Body.String()
	assert.Contains(t, text, "</span>50/1m; shadow<", "the difference stands beside the button")
	w = post(t, h, "/apps/pay/policies/search/trial", "on", "true", "revision", "4", "reason", "attack", "end", "1h")
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Contains(t, get(t, h, w.Header().Get("Location")).Body.String(), "On trial: nobody is refused")
	assert.NotContains(t, get(t, h, "/apps/pay/policies/webhooks").Body.String(), "shadow off", "the Manager says what is written")
	assert.Equal(t, fixed().Add(time.Hour), f.until)
}

// Nobody finds out by a page what they may not see, and what one may see one cannot always change.
func TestRights(t *testing.T) {
	t.Parallel()
	stranger := &rights.Person{ID: "x", Roles: map[string]rights.Role{"shop": rights.Owner}}
	viewer := &rights.Person{ID: "v", Roles: map[string]rights.Role{"pay": rights.Viewer}}
	f := newFake(fixed)
	h := serve(t, f, stranger)
	assert.Equal(t, http.StatusNotFound, get(t, h, "/apps/pay").Code)
	assert.Equal(t, http.StatusNotFound, get(t, h, "/apps/pay/policies/search").Code)
	assert.NotContains(t, get(t, h, "/").Body.String(), "pay")
	h = serve(t, f, viewer)
	text := get(t, h, "/apps/pay/policies/search").Body.String()
	assert.NotContains(t, text, "<textarea")
	assert.NotContains(t, text, "/trial")
	assert.NotContains(t, text, "user=7")
	for _, path := range []string{"review", "write", "trial"} {
		assert.Equal(t, http.StatusForbidden, post(t, h, "/apps/pay/policies/search/"+path, "what", "put", "text", "1/1s", "revision", "4").Code, path)
	}
	assert.Equal(t, http.StatusForbidden, post(t, h, "/apps/pay/key", "key", "user=7").Code)
	assert.Empty(t, f.writes)
}

// A rule that obeys looks like one.
func TestRulesThatObey(t *testing.T) {
	t.Parallel()
	text := get(t, serve(t, newFake(fixed), owner), "/apps/pay/policies/login").Body.String()
	assert.Equal(t, 3, strings.Count(text, `<td><span class="badge good">fleet</span>`)+strings.Count(text, `<td><span class="badge warn">behind</span>`))
	assert.NotContains(t, text, `<span class="badge bad">`)
}

// What somebody types is not on trial before it is written.
func TestTypedTrial(t *testing.T) {
	t.Parallel()
	h := serve(t, newFake(fixed), owner)
	text := post(t, h, "/apps/pay/policies/search/edit", "text", "70/1m; shadow", "revision", "4").Body.String()
	assert.Contains(t, text, `value="70/1m; shadow"`)
	assert.NotContains(t, text, "On trial: nobody is refused")
	assert.Contains(t, text, "</span>50/1m; shadow<")
}

// What only services can tell may be missing: the page says so and shows the rest.
func TestGaps(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	f.gaps = &adminapi.Problem{Status: http.StatusServiceUnavailable, Detail: "Redis does not answer"}
	h := serve(t, f, owner)
	w := get(t, h, "/apps/pay/policies/search")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, 3, strings.Count(w.Body.String(), "Redis does not answer"), "processes, usage, keys")
	assert.Contains(t, w.Body.String(), `value="50/1m"`)
	w = get(t, h, "/apps/pay")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), "Redis does not answer")
	assert.Contains(t, w.Body.String(), `<a href="/apps/pay/policies/search">`)
	w = post(t, h, "/apps/pay/policies/search/review", "what", "put", "text", "70/1m", "revision", "4")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), "Redis does not answer")
}

// Somebody whose session has ended sends a form: nothing of it is lost, unless another site has sent it.
func TestEndedSession(t *testing.T) {
	t.Parallel()
	h, err := page.New(page.Options{
		Manager: newFake(fixed), Authenticate: func(*http.Request) (*rights.Person, error) { return nil, people.ErrNobody },
	})
	require.NoError(t, err)
	w := get(t, h, "/apps/pay?x=1")
	assert.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "/login?next=%2Fapps%2Fpay", w.Header().Get("Location"))
	w = get(t, h, "/apps/pay", "Hx-Request", "true")
	assert.Equal(t, "/login?next=%2Fapps%2Fpay", w.Header().Get("Hx-Redirect"))

	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/apps/pay/policies/search/review", strings.NewReader("text=12%2F1m"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for site, kept := range map[string]bool{"same-origin": true, "cross-site": false, "": false} {
		r.Header.Set("Sec-Fetch-Site", site)
		r.PostForm, r.Form, r.Body = nil, nil, io.NopCloser(strings.NewReader("text=12%2F1m"))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, http.StatusUnauthorized, w.Code)
		assert.Equal(t, kept, strings.Contains(w.Body.String(), `value="12/1m"`), site)
	}
}

// Somebody who is put out while they send a form has no right any more when it has come.
func TestPutOutWhileSending(t *testing.T) {
	t.Parallel()
	who, known := owner, error(nil)
	h, err := page.New(page.Options{
		Manager: newFake(fixed), Authenticate: func(*http.Request) (*rights.Person, error) { return who, known }, Now: fixed,
	})
	require.NoError(t, err)
	form := strings.NewReader("what=put&text=70%2F1m&revision=4")
	body := readerFunc(func(b []byte) (int, error) {
		who, known = nil, people.ErrNobody
		return form.Read(b)
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/apps/pay/policies/search/review", body)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Equal(t, http.StatusUnauthorized, w.Code)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// What goes wrong inside is for the log.
func TestInternalErrorsStayInside(t *testing.T) {
	t.Parallel()
	h, err := page.New(page.Options{
		Manager: newFake(fixed), Authenticate: func(*http.Request) (*rights.Person, error) { return nil, errors.New("password=hunter2") },
		Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	w := get(t, h, "/")
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.NotContains(t, w.Body.String(), "hunter2")
}

// A file has an address that changes with it, and is served at no other.
func TestStatic(t *testing.T) {
	t.Parallel()
	h := serve(t, newFake(fixed), nil)
	address := regexp.MustCompile(`href="(/static/[^"]*/page.css)"`).FindStringSubmatch(get(t, h, "/nothing").Body.String())[1]
	w := get(t, h, address)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
	assert.Equal(t, http.StatusNotFound, get(t, h, "/static/old/page.css").Code)
	assert.Equal(t, http.StatusNotFound, get(t, h, "/static/"+"..%2fpage.go").Code)
}
