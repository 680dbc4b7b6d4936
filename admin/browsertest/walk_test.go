package browsertest

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/race"
)

// walker is somebody who knows nothing of the page but what is visible on it: links, buttons and fields have the names
// that they can read, and are pressed where they see them.
type walker struct {
	*tab
	clicks, fields, pictures int
	began                    time.Time
}

// visible finds what a person would: elements of a selector whose visible text is the one given, below the heading of
// their part of the page, or in the row that begins with it, if one is given.
const visible = `((selector, text, part) => {
	const seen = e => e.checkVisibility({visibilityProperty: true}) && e.getBoundingClientRect().width > 1;
	const words = e => {
		const copy = e.cloneNode(true);
		copy.querySelectorAll(".unseen, select").forEach(u => u.remove());
		return copy.textContent.replace(/\s+/g, " ").trim();
	};
	const parts = part === "" ? [document.body] : [...document.querySelectorAll("h1, h2, h3, th[scope=row], td:first-child")]
		.filter(h => seen(h) && words(h) === part).map(h => h.closest("tr, section, main"));
	const found = new Set(parts.flatMap(p => [...p.querySelectorAll(selector)]));
	const fit = [...found].filter(e => seen(e) && (words(e) === text || e.placeholder === text));
	return new Set(fit.map(e => e.href || e)).size === 1 ? fit : []; // several may lead to the same place
})`

// point returns the middle of what has a text, and waits until there is one such thing.
func (w *walker) point(selector, text, part string) (x, y float64) {
	w.t.Helper()
	find := fmt.Sprintf("%s(%q, %q, %q)", visible, selector, text, part)
	w.await(`document.readyState === "complete" && ` + find + `.length > 0`)
	place := ask[[]float64](w.tab, `(e => {
		e.scrollIntoView({block: "center", behavior: "instant"});
		const r = e.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})(`+find+`[0])`)
	return math.Round(place[0]), math.Round(place[1])
}

// press clicks on the link or the button with a text.
func (w *walker) press(text string, part ...string) {
	w.t.Helper()
	w.shoot()
	x, y := w.point("a, button, summary", text, strings.Join(part, ""))
	w.do(chromedp.MouseClickXY(x, y))
	w.clicks++
}

// write types into the field with a label or a hint within it, in the place of what stands there.
func (w *walker) write(label, text string, part ...string) {
	w.t.Helper()
	x, y := w.point("label, input, textarea", label, strings.Join(part, ""))
	w.do(chromedp.MouseClickXY(x, y), chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)),
		chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(text))
	w.fields++
}

// reads waits until a text is visible.
func (w *walker) reads(text string) {
	w.t.Helper()
	w.shows(text)
}

// shoot keeps what is in the window.
func (w *walker) shoot() {
	w.t.Helper()
	w.pictures++
	if folder := os.Getenv("WEIR_SCREENSHOTS"); folder != "" {
		w.await(`document.readyState === "complete"`)
		ctx, cancel := context.WithTimeout(w.ctx, patience/10)
		defer cancel()
		png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			w.t.Logf("there is no picture %d: %v", w.pictures, err)
			return
		}
		require.NoError(w.t, os.WriteFile(fmt.Sprintf("%s/walk-%02d.png", folder, w.pictures), png, 0o600))
	}
}

// startByREADME runs the command that the README has for the demo, and returns the link that it prints.
func startByREADME(t *testing.T) (link string) {
	t.Helper()
	if race.Enabled {
		t.Skip("it is the same without the race detector")
	}
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	command := regexp.MustCompile("cd (?:weir/)?admin && (go run [^`]*weir-admin demo)").FindSubmatch(readme)
	require.NotNil(t, command, "the README has no command for the demo")
	demo := exec.CommandContext(t.Context(), "sh", "-c", string(command[1]))
	demo.Dir = ".."
	demo.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run and the program end together
	demo.Cancel = func() error { return syscall.Kill(-demo.Process.Pid, syscall.SIGINT) }
	demo.WaitDelay = patience
	out, err := demo.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, demo.Start())
	t.Cleanup(func() {
		assert.NoError(t, demo.Cancel())
		_ = demo.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if link = strings.TrimSpace(lines.Text()); strings.HasPrefix(link, "http://") {
			go func() { // it may say more
				for lines.Scan() {
				}
			}()
			return link
		}
	}
	t.Fatalf("%s has printed no link: %v", command[1], lines.Err())
	return ""
}

// A newcomer runs the demo as the README says, raises a limit, gives one customer more, and undoes both: by what they see
// alone, within five minutes, of which this needs the part that is no reading and no thinking.
func TestWalkOfANewcomer(t *testing.T) {
	began := time.Now()
	link := startByREADME(t)
	started := time.Since(began)
	w := &walker{tab: open(t, link[:strings.Index(link, "/link")]), began: time.Now()}
	w.goTo(link[len(w.site):])
	w.press("Log in")

	// A limit is raised.
	w.reads("Everything is obeyed")
	w.press("shop")
	w.press("search")
	w.await(`location.pathname.endsWith("/policies/search") && /revision \d+/.test(document.body?.innerText)`)
	before := ask[string](w.tab, `document.body.innerText.match(/revision (\d+)/)[1]`)
	w.write("Limits", "120/1m")
	w.reads("at once: 120 units")
	w.press("Show what this changes")
	w.reads("Nothing is written yet.")
	w.press("Publish it")
	w.reads("Written as revision")
	w.reads("1 of 1 rule obeys it.")
	w.shoot()

	// One customer gets more.
	w.press("Home")
	w.write("An app, a policy, or user=7", "user=7")
	w.press("Search")
	w.reads("Refused by 1 policy")
	w.press("Other numbers, or block it", "exports")
	w.write("Numbers for this key", "50/1h", "exports")
	w.press("Show what this changes", "exports")
	w.press("Give it these numbers", "exports")
	w.reads("This key has 50/1h in exports now.")
	w.shoot()

	// Both are undone.
	w.press("End it now", "exports")
	w.reads("This key has the numbers of the others again in exports.")
	w.press("shop")
	w.press("search")
	w.press("Go back", before)
	w.reads("Nothing is written yet.")
	w.press("Go back to it")
	w.reads("Written as revision")
	w.reads("1 of 1 rule obeys it.")
	w.shoot()
	w.calm()
	t.Logf("%d clicks and %d fields in %s, after %s until the link was there", w.clicks, w.fields,
		time.Since(w.began).Round(time.Second/10), started.Round(time.Second/10))
}
