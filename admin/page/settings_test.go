package page_test

import (
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	f.open = []manage.Proposal{{
		ID: "3", App: "pay", By: "ben", Reason: "too few", Made: fixed(), Ends: fixed().Add(time.Hour), MayApprove: true,
		Differences: []adminapi.Difference{{
			Name: "search", Before: &adminapi.Policy{Text: "50/1m"}, After: &adminapi.Policy{Text: "<b>70/1m"},
		}},
	}}
	for seq := range int64(60) {
		f.rows = append(f.rows, manage.AuditRow{Seq: 60 - seq, At: fixed(), Name: "ben", App: "pay", Action: "set", Reason: fmt.Sprintf("reason %d.", 60-seq)})
	}
	f.rows[0].Emergency = true
	h := serve(t, f, owner)
	text := get(t, h, "/changes?app=pay").Body.String()
	assert.Contains(t, text, "&lt;b&gt;70/1m")
	assert.Contains(t, text, "reason 11.")
	assert.NotContains(t, text, "reason 10.")
	assert.Contains(t, text, `href="/changes?app=pay&amp;before=11"`)
	assert.Contains(t, get(t, h, "/changes?app=pay&before=11").Body.String(), "reason 10.")

	assert.Contains(t, post(t, h, "/proposals/3", "what", "approve", "reason", "other", "words", "right").Body.String(), "holds now")
	post(t, h, "/proposals/3", "what", "reject", "reason", "attack")
	post(t, h, "/changes/seen", "seq", "60")
	assert.Equal(t, []string{"approve 3, right", "reject 3, attack", "seen, -"}, f.done)

	f.refuse = problem(http.StatusConflict, "somebody was faster")
	assert.Contains(t, post(t, h, "/proposals/3", "what", "approve", "reason", "attack").Body.String(), "somebody was faster")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	f.people = []manage.Somebody{{ID: "local:ben", Name: "ben", Roles: map[string]string{"pay": "viewer"}}}
	f.tokens = []manage.Token{{ID: 12004, Name: "deploy", Maker: "local:ben", Apps: []string{"pay"}, Role: "owner", Ends: fixed()}}
	admin := &rights.Person{ID: "local:anna", Name: "anna", Admin: true}
	h := serve(t, f, admin)
	listed := get(t, h, "/settings").Body.String()
	assert.Contains(t, listed, `deploy<span class="small">12004</span>`)
	assert.Contains(t, listed, `name="token" value="12004"><input type="hidden" name="words" value="no reason given">`, "it may be a leak")

	made := post(t, h, "/settings/tokens", "name", "ci", "apps", "pay, shop", "role", "owner", "days", "30", "reason", "new program")
	assert.Contains(t, made.Body.String(), "weir_secret")
	assert.NotContains(t, get(t, h, "/settings").Body.String(), "weir_secret")
	post(t, h, "/settings/tokens/end", "token", "4", "words", "not needed")
	post(t, h, "/settings/people", "person", "local:ben", "what", "bar", "words", "left")
	post(t, h, "/settings/people", "person", "local:ben", "what", "admit", "words", "back")
	post(t, h, "/settings/people", "person", "local:ben", "what", "sessions", "words", "lost a laptop")
	added := post(t, h, "/settings/apps", "app", "new", "words", "as agreed")
	assert.Equal(t, "/settings/apps/new", added.Header().Get("Location"))
	assert.Equal(t, []string{
		"token ci, new program", "end a token, not needed", "bar local:ben, left", "admit local:ben, back",
		"sessions of local:ben, lost a laptop", "settings of new, as agreed",
	}, f.done)
	assert.Contains(t, post(t, h, "/settings/apps", "app", "new").Body.String(), "Nothing was changed", "a change without a reason")
}

func TestAppSettings(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	h := serve(t, f, owner)
	seen := post(t, h, "/settings/apps/pay", "what", "review", "title", "Money", "four-eyes", "true", "counts", "stolen")
	assert.Contains(t, seen.Body.String(), "title: Money")
	assert.Contains(t, seen.Body.String(), "another owner approves each change")
	assert.Empty(t, f.done, "nothing is written before it was seen")
	assert.NotRegexp(t, `<input id="(title|kept-by|kept-by-token|counts|four-eyes)"`, seen.Body.String(),
		"Enter in a field that can be edited would write what was not reviewed")
	fields := regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(seen.Body.String(), -1)
	var reviewed []string
	for _, field := range fields[:6] {
		reviewed = append(reviewed, field[1]+"="+field[2])
	}
	assert.Equal(t, []string{"revision=0", "title=Money", "four-eyes=true", "kept-by=", "kept-by-token=", "counts="}, reviewed)
	again := post(t, h, "/settings/apps/pay", "what", "edit", "title", "Money", "four-eyes", "true").Body.String()
	assert.Contains(t, again, `<input id="title" name="title" value="Money"`)
	assert.NotContains(t, again, "Write them")
	for _, token := range []string{"12\u202f004", "deploy", "-4", "0"} {
		w := post(t, h, "/settings/apps/pay", "what", "write", "title", "Money", "kept-by-token", token, "words", "as agreed")
		assert.Contains(t, w.Body.String(), "give its number")
		assert.Contains(t, w.Body.String(), `value="Money"`, "what was typed is still there")
	}
	assert.Empty(t, f.done)
	post(t, h, "/settings/apps/pay", "what", "write", "title", "Money", "four-eyes", "true", "counts", "stolen", "words", "as agreed")
	assert.Equal(t, []string{"settings of pay, as agreed"}, f.done)
	assert.True(t, f.office.settings.FourEyes)
	post(t, h, "/settings/apps/pay", "what", "write", "kept-by-token", " 12004 ", "words", "as agreed")
	assert.Equal(t, int64(12004), f.office.settings.KeptByToken)
	f.refuse = problem(http.StatusPreconditionFailed, "somebody was faster")
	late := post(t, h, "/settings/apps/pay", "what", "write", "title", "Euros", "words", "as agreed").Body.String()
	assert.Contains(t, late, "somebody was faster")
	assert.Contains(t, late, `name="title" value="Euros"`, "what was typed is still there")
	assert.Contains(t, late, "title: Euros", "and what it changes of what holds now")
	f.refuse, f.done = nil, nil
	assert.NotContains(t, f.office.settings.Counts, "stolen", "prefixes are an admin's")

	give := []string{"what", "give", "kind", "person", "subject", "local:ben", "role", "viewer", "end", "1d", "words", "new"}
	post(t, h, "/settings/apps/pay/grants", append([]string{"revision", "0"}, give...)...)
	require.Len(t, f.grants, 1)
	assert.Equal(t, manage.Grant{Kind: "person", Subject: "local:ben", Role: "viewer", Ends: fixed().Add(24 * time.Hour)}, f.grants[0])
	stale := post(t, h, "/settings/apps/pay/grants", append([]string{"revision", "0"}, give...)...)
	assert.Contains(t, stale.Body.String(), "Somebody has changed the rights meanwhile")
	post(t, h, "/settings/apps/pay/grants", "revision", "1", "what", "take", "kind", "person", "subject", "local:ben", "words", "left")
	assert.Empty(t, f.grants)

	operator := &rights.Person{ID: "local:olga", Roles: map[string]rights.Role{"pay": rights.Operator}}
	assert.Equal(t, http.StatusForbidden, get(t, serve(t, f, operator), "/settings/apps/pay").Code)
	assert.Equal(t, http.StatusForbidden, get(t, serve(t, f, operator), "/settings/apps/*").Code)
}

func TestRollbackOfAnApp(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	f.rows = []manage.AuditRow{{Seq: 1, At: fixed(), App: "pay", Action: "set", Revision: 3}}
	h := serve(t, f, owner)
	assert.Contains(t, get(t, h, "/changes?app=pay").Body.String(), "All of pay as it was then")
	assert.NotContains(t, get(t, h, "/changes").Body.String(), "as it was then", "of many apps nobody would see which")
	seen := post(t, h, "/apps/pay/rollback", "to", "3").Body.String()
	assert.Contains(t, seen, "100/1m")
	assert.Contains(t, seen, "5/1m")
	assert.Empty(t, f.done, "nothing is written before it was seen")
	done := post(t, h, "/apps/pay/rollback", "to", "3", "what", "write", "reason", "attack")
	assert.Equal(t, "/apps/pay", done.Header().Get("Location"))
	assert.Equal(t, []string{"back, pay, attack"}, f.done)
	f.refuse = problem(http.StatusPreconditionFailed, "somebody was faster")
	late := post(t, h, "/apps/pay/rollback", "to", "3", "what", "write", "reason", "attack")
	assert.Contains(t, late.Body.String(), "somebody was faster")
}
