package browsertest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/demo"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
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
		{"settings-before-they-are-written", func() {
			b.goTo("/settings/apps/shop")
			b.fill("#title", "The shop")
			b.keys(kb.Enter)
			b.shows("title: The shop")
		}},
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

// The report of an import is a part of the settings, however many doubts it has.
func TestScreenOfAnImport(t *testing.T) {
	s := newStage(t)
	report := record.Imported{Rows: 60, Held: 2}
	for i := range 30 {
		name := fmt.Sprintf("partner-%02d", i)
		report.Taken = append(report.Taken, record.ImportedRow{Row: int64(i), Name: name, Text: "100/1s burst 250"})
		report.Doubts = append(report.Doubts, record.ImportedRow{
			Row: int64(30 + i), Name: strings.Repeat("a long name ", 8), LeftOut: i%2 == 0,
			Why: "the list of apps is as long as its column, so that it may have been cut off: " + strings.Repeat("a,", 127),
		})
	}
	require.NoError(t, s.record.Import(t.Context(), record.Change{
		App: "pay", By: audit.Person{ID: people.Console().ID, Name: people.Console().Name}, Reason: "import of the old limiter's table", Action: "import",
		Edits: []record.Edit{{Name: "partner-00", Policy: &policies.Policy{Text: "100/1s burst 250"}}},
	}, "mysql://db.example.com/limits_of_the_old_limiter", report))
	b := s.enter("root", rights.Admin)
	b.look("settings-with-an-import", func() {
		b.goTo("/settings")
		b.shows("60 rows: 30 written, 2 there already, 30 doubts")
		b.goTo("/settings?doubts=25#doubts")
		b.shows("Row 59")
	})
	b.calm()
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
