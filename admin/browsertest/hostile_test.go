package browsertest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
)

// hostile returns the strings of testdata/hostile.txt, each in quotes.
func hostile(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("testdata/hostile.txt")
	require.NoError(t, err)
	var all []string
	for line := range strings.Lines(string(data)) {
		text, err := strconv.Unquote(strings.TrimSpace(line))
		require.NoError(t, err, line)
		all = append(all, text)
	}
	require.Len(t, all, 50)
	return all
}

// textAlone fails the test if something that was to be text has become a part of the page.
func (b *tab) textAlone(what string) {
	b.t.Helper()
	for _, odd := range ask[[]string](b, `[...document.querySelectorAll("body *")].filter(e =>
		/^(script|style|iframe|object|embed|base|meta|link|img|math|template|noscript)$/i.test(e.tagName) ||
		[...e.attributes].some(a => /^on/i.test(a.name) || a.name === "style" || a.name === "autofocus" ||
			/^(href|src|action|formaction|hx-get|hx-post)$/.test(a.name) && !/^(\/($|[^\/\\])|#)/.test(a.value)))
		.map(e => e.outerHTML.slice(0, 300))`) {
		b.t.Errorf("%s: %s", what, odd)
	}
	assert.True(b.t, ask[bool](b, `window.hit === undefined`), what)
	assert.True(b.t, ask[bool](b, `document.title.endsWith(" · weir") && document.querySelectorAll("main").length === 1`), what)
}

// has fails the test if a text is not among the text of the page, but for how its spaces and invisible characters look.
func (b *tab) has(what, text string) {
	b.t.Helper()
	seen := func(text string) string {
		runes := []rune(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == '\ufffd' }), ""))
		return string(runes[:min(len(runes), 40)])
	}
	page := strings.Join(strings.FieldsFunc(ask[string](b, `document.body.textContent`), func(r rune) bool { return r <= ' ' || r == '\ufffd' }), "")
	assert.Contains(b.t, page, seen(text), what)
}

// Whatever services, reasons, keys and people say is text.
func TestHostileTexts(t *testing.T) {
	s := newStage(t)
	texts := hostile(t)
	accepted := 0
	keys := map[string]string{}
	for i, text := range texts {
		keys[text] = "5/1m"
		change := record.Change{
			App: "pay", By: audit.Person{ID: "local:x", Name: text}, Reason: jsText(text), Action: "set",
			Edits: []record.Edit{{Name: "search", Policy: &policies.Policy{Text: "50/1m", Keys: keys}}},
		}
		if _, err := s.record.Change(t.Context(), change); err != nil {
			delete(keys, text) // it is no key, but still a reason
			change.Edits[0].Policy = &policies.Policy{Text: fmt.Sprintf("%d/1m", 50+i), Keys: keys}
			_, err = s.record.Change(t.Context(), change)
			require.NoError(t, err, text)
			continue
		}
		accepted++
	}
	assert.Greater(t, accepted, 40)
	for i, text := range texts {
		s.processes = append(s.processes, &policies.Process{
			App: "pay", ID: fmt.Sprintf("%d", i) + text, Name: text, Started: time.Now(), Weir: text, Version: policies.Version{Generation: 1, Revision: 1},
			Meaning: policies.Unread, Why: text, Rules: []policies.RuleState{
				{Policy: "search", Place: text, Key: text, Code: text, Now: text, Meaning: policies.Unusable, Why: text},
				{Policy: text, Place: text, Key: text, Code: text, Now: text, Meaning: policies.Code, Why: text},
			},
		})
	}
	b := s.enter("anna", rights.Owner)
	b.goTo("/")
	b.textAlone("home")
	for _, path := range []string{"/changes", "/settings", "/settings/apps/pay", "/apps/pay"} {
		b.goTo(path)
		b.textAlone(path)
	}
	b.goTo("/apps/pay/policies/search")
	b.textAlone("policy")
	for _, text := range texts {
		b.has("a process", text)
	}
	for _, text := range texts[len(texts)-10:] {
		b.has("a reason", text)
	}
	// What stands in the editor goes back as it is: the review finds no difference.
	b.click("#editing button.first")
	b.shows("This changes nothing")
	b.textAlone("review")

	for _, text := range texts {
		b.goTo("/")
		ask[bool](b, fmt.Sprintf(`(document.querySelector("#search").value = %s, true)`, strconv.QuoteToASCII(strings.ToValidUTF8(jsText(text), ""))))
		b.tabTo("#search")
		b.keys(kb.Enter)
		b.await(`location.pathname !== "/" && document.readyState === "complete"`)
		b.textAlone("the search for " + text)

		b.goTo("/apps/pay/policies/search")
		ask[bool](b, fmt.Sprintf(`(document.querySelector("#text").value = %[1]s, document.querySelector("#keys").value = %[1]s, true)`,
			strconv.QuoteToASCII(jsText(text))))
		b.click("#editing button.first")
		b.await(`location.pathname.endsWith("/review") && document.readyState === "complete"`)
		b.textAlone("a draft with " + text)
	}
	b.calm()
}

// jsText returns a text without control characters, which the record refuses in reasons, and JavaScript in quotes.
func jsText(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}, text)
}
