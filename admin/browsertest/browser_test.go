package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// patience bounds what must come, on a machine with much else to do.
const patience = time.Minute

// chromium is the browser of all tests, which starts with the first of them.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, nil
	}
	options := slices.Concat(chromedp.DefaultExecAllocatorOptions[:], []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"), // nothing reaches the network
	})
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(ctx)
	stopChromium = func() {
		end()
		stop()
	}
	return ctx, chromedp.Do(ctx)
})

var stopChromium = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	stopChromium()
	os.Exit(code)
}

// tab is a browser of its own, with its own cookies: a person before a screen.
type tab struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // it is the handle of the tab
	site string

	mu        sync.Mutex
	console   []string
	reports   []string // of the Content-Security-Policy
	elsewhere []string // requests to other hosts
}

// open returns a tab that looks at a site.
func open(t *testing.T, site string) *tab {
	t.Helper()
	browser, err := chromium()
	require.NoError(t, err)
	if browser == nil {
		if os.Getenv("WEIR_REQUIRE_CHROMIUM") == "1" {
			t.Fatal("WEIR_REQUIRE_CHROMIUM is 1, and there is no chromium in PATH")
		}
		t.Skip("there is no chromium in PATH")
	}
	b := &tab{t: t, site: site}
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	b.ctx = ctx
	t.Cleanup(end)
	require.NoError(t, chromedp.Do(ctx)) // which opens it, for as long as this context lives
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{})
		return err
	})
	b.width(1280)
	return b
}

// hear keeps what must not happen.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		text, _ := json.Marshal(e.Args)
		b.console = append(b.console, string(e.Type)+": "+string(text))
	case *runtime.EventExceptionThrown:
		b.console = append(b.console, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		b.console = append(b.console, fmt.Sprintf("%s: %s (%s)", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *audits.EventIssueAdded:
		if e.Issue.Details.ContentSecurityPolicyIssueDetails != nil {
			text, _ := json.Marshal(e.Issue.Details.ContentSecurityPolicyIssueDetails)
			b.reports = append(b.reports, string(text))
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme != "data" && u.Scheme+"://"+u.Host != b.site {
			b.elsewhere = append(b.elsewhere, e.Request.URL)
		}
	}
}

// calm fails the test if there was a line in the console, a report, or a request to another host.
func (b *tab) calm() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.console)+len(b.reports)+len(b.elsewhere) > 0 {
		b.t.Errorf("console: %q\nreports: %q\nelsewhere: %q", b.console, b.reports, b.elsewhere)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// ask evaluates an expression.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, expression)
	return value
}

// await waits until an expression is true. It asks from outside, so that it works without scripts.
func (b *tab) await(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && ok {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("%s is not true after %s, but at %s:\n%s", expression, patience,
				ask[string](b, "location.href"), ask[string](b, "document.body.innerText"))
		}
		select { // a navigation may be under way
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// shows waits until the page has a text.
func (b *tab) shows(text string) {
	b.t.Helper()
	b.await(fmt.Sprintf("document.readyState !== 'loading' && document.body.innerText.includes(%q)", text))
}

func (b *tab) goTo(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.site + path))
}

func (b *tab) text() string { return ask[string](b, "document.body.innerText") }

func (b *tab) width(pixels int64) { b.do(chromedp.EmulateViewport(pixels, 900)) }

// colors chooses "light" or "dark".
func (b *tab) colors(scheme string) {
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

// withoutScripts lets no page run scripts from the next one on.
func (b *tab) withoutScripts() {
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	})
}

func (b *tab) call(f func(context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, f(ctx))
}

// keys types, as a keyboard does.
func (b *tab) keys(text string) { b.do(chromedp.KeyEvent(text)) }

// tabTo presses the tab key until what has the focus matches a selector, and fails if that never happens.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	for range 80 {
		if ask[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			return
		}
		b.keys(kb.Tab)
	}
	b.t.Fatalf("80 times the tab key do not lead to %s at %s", selector, ask[string](b, "location.href"))
}

var axe = sync.OnceValue(func() string {
	source, err := os.ReadFile("testdata/axe.min.js")
	if err != nil {
		panic(err)
	}
	return string(source)
})

// accessible fails the test for each violation that axe-core finds, of all its rules.
func (b *tab) accessible(what string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Evaluate[*runtime.RemoteObject](axe()))
	require.NoError(b.t, err)
	found := ask[[]string](b, `axe.run(document, {resultTypes: ["violations"], preload: false}).then(r => r.violations.map(v =>
		v.id + ": " + v.help + " " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`)
	for _, violation := range found {
		b.t.Errorf("%s: %s", what, violation)
	}
}

// fits fails the test if the page is wider than the window.
func (b *tab) fits(what string) {
	b.t.Helper()
	if wide, window := ask[int](b, "document.documentElement.scrollWidth"), ask[int](b, "innerWidth"); wide > window {
		b.t.Errorf("%s is %d pixels wide in a window of %d: %s", what, wide, window, ask[string](b, `[...document.querySelectorAll("main *")]
			.filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 3).map(e => e.outerHTML.slice(0, 200)).join("\n")`))
	}
}
