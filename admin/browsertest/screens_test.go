package browsertest

import (
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/demo"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/race"
)

// startDemo starts the demo, and returns a tab of its admin.
func startDemo(t *testing.T) (*demo.Demo, *tab) {
	t.Helper()
	if race.Enabled {
		t.Skip("there is no SQLite with the race detector")
	}
	d, err := demo.Start(t.Context(), demo.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	b := open(t, d.URL)
	b.enterBy(d.Link.URL)
	return d, b
}

// Each screen, in both colors, narrow and wide: nothing that axe-core finds, nothing in the console, no report of the
// Content-Security-Policy, no request to another host, and nothing wider than the window. WEIR_SCREENSHOTS names a
// folder for pictures of them.
func TestScreens(t *testing.T) {
	_, b := startDemo(t)
	review := func() {
		b.goTo("/apps/shop/policies/search")
		b.fill("#text", "40/1m burst 5")
		b.click("#editing button.first")
		b.await(`location.pathname.endsWith("/review") && document.querySelector("form[action$='/write']")`)
	}
	screens := []struct {
		name  string
		reach func()
	}{
		{"home", func() { b.goTo("/") }},
		{"app", func() { b.goTo("/apps/shop") }},
		{"app-of-another-framework", func() { b.goTo("/apps/partners") }},
		{"policy", func() { b.goTo("/apps/shop/policies/search") }},
		{"policy-on-trial", func() { b.goTo("/apps/partners/policies/webhooks") }},
		{"policy-with-mistakes", func() {
			b.goTo("/apps/shop/policies/search")
			b.fill("#text", "60/1fortnight")
			b.shows("This is not right yet")
		}},
		{"new", func() { b.goTo("/apps/shop/new") }},
		{"review", review},
		{"search", func() {
			b.goTo("/")
			b.fill("#search", "s")
			b.keys(kb.Enter)
			b.await(`location.pathname === "/search"`)
		}},
		{"key", func() {
			b.goTo("/")
			b.fill("#search", "user=12")
			b.keys(kb.Enter)
			b.shows("Each look is in the audit")
		}},
		{"changes", func() { b.goTo("/changes") }},
		{"rollback", func() {
			b.goTo("/changes?app=shop")
			b.click("tr:last-child form[action$='/rollback'] button")
			b.shows("as it was at revision")
		}},
		{"settings", func() { b.goTo("/settings") }},
		{"settings-of-an-app", func() { b.goTo("/settings/apps/shop") }},
		{"login", func() { b.goTo("/login") }},
		{"link", func() { b.goTo("/link") }},
	}
	for _, screen := range screens {
		t.Run(screen.name, func(t *testing.T) {
			b.t = t
			b.look(screen.name, screen.reach)
			b.calm()
		})
	}
	b.t = t
}

// look judges a screen in both colors, narrow and wide.
func (b *tab) look(name string, reach func()) {
	b.t.Helper()
	for _, colors := range []string{"light", "dark"} {
		for _, width := range []int64{320, 1280} {
			b.colors(colors)
			b.width(width)
			reach()
			what := fmt.Sprintf("%s-%s-%d", name, colors, width)
			b.accessible(what)
			b.fits(what)
			b.picture(what)
		}
	}
}

// An app that is not there, or that somebody may not see, is answered by 404 in truth, so that programs and proxies know
// it too. The browser writes a line of its own about such an answer: nothing else is in the console.
func TestNothing(t *testing.T) {
	_, b := startDemo(t)
	b.look("nothing", func() { b.goTo("/apps/hidden") })
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.console {
		assert.Contains(t, line, "Failed to load resource: the server responded with a status of 404")
	}
	assert.Empty(t, b.reports)
	assert.Empty(t, b.elsewhere)
}

// picture keeps the screen in the folder WEIR_SCREENSHOTS.
func (b *tab) picture(name string) {
	folder := os.Getenv("WEIR_SCREENSHOTS")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(folder+"/"+name+".png", png, 0o600))
}

// The two things for which somebody is called at night, by the keyboard alone, with and without scripts: at most one
// text and two presses of a button.
func TestJourneys(t *testing.T) {
	d, admin := startDemo(t)
	admin.calm()
	for _, scripts := range []bool{true, false} {
		name := map[bool]string{true: "with", false: "without"}[scripts]
		enter := func(t *testing.T, role rights.Role) *tab {
			link, err := d.People.MakeLink(t.Context(), people.By{Person: people.Console(), Reason: "a test"},
				people.LocalPerson{Name: name + "-scripts", Role: role, App: rights.AllApps})
			require.NoError(t, err)
			b := open(t, d.URL)
			if scripts {
				b.enterBy(link.URL)
				return b
			}
			b.withoutScripts()
			b.goTo("/link")
			b.tabTo("#secret")
			b.keys(link.Code + kb.Enter)
			b.await(`location.pathname === "/" && document.querySelector("#search")`)
			return b
		}
		t.Run("customer 7 has their limit back, "+name+" scripts", func(t *testing.T) {
			b := enter(t, rights.Operator)
			b.tabTo("#search")
			b.keys("user=7" + kb.Enter) // the text, and the first button
			b.shows("Each look is in the audit")
			b.tabTo("form[action$='/key/reset'] button")
			policy := ask[string](b, `document.activeElement.form.elements.policy.value`)
			b.keys(kb.Enter) // the second
			b.shows(policy + " counts this key from the beginning again.")
			b.calm()
		})
		t.Run("a policy is on trial, "+name+" scripts", func(t *testing.T) {
			b := enter(t, rights.Operator)
			b.tabTo("#search")
			b.keys("search" + kb.Enter)
			b.await(`location.pathname === "/apps/shop/policies/search" && document.querySelector("form[action$='/trial']")`)
			if ask[string](b, `document.querySelector("input[name=on]").value`) == "false" { // from the round before
				b.tabTo("form[action$='/trial'] button")
				b.keys(kb.Enter)
				b.await(`document.readyState !== "loading" && document.querySelector("input[name=on]")?.value === "true"`)
			}
			assert.Contains(t, b.text(), "shadow", "the difference stands beside the button")
			b.tabTo("form[action$='/trial'] button")
			b.keys(kb.Enter)
			b.shows("On trial: nobody is refused")
			b.calm()
		})
	}
}
