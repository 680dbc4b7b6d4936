package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
)

// fill replaces what stands in a field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.do(chromedp.Focus(chromedp.CSS(selector)), chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)),
		chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(text))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// publish changes the text of the policy that the tab shows.
func (b *tab) publish(text string) {
	b.t.Helper()
	b.fill("#text", text)
	b.click("#editing button.first")
	b.shows("Nothing is written yet.")
	b.await(`location.pathname.endsWith("/review")`)
	b.shows(text)
	b.click("form[action$='/write'] button.first")
	b.shows("Written as revision")
}

// A change that is made in one browser shows in the others, within 3 s on a machine that has the time for it.
func TestChangeShowsElsewhere(t *testing.T) {
	s := newStage(t)
	s.write(policies.Policy{Text: "50/1m"})
	writer, policy, app, home := s.enter("anna", rights.Owner), s.enter("ben", rights.Viewer), s.enter("chris", rights.Viewer), s.enter("dora", rights.Viewer)
	policy.goTo("/apps/pay/policies/search")
	app.goTo("/apps/pay")
	writer.goTo("/apps/pay/policies/search")
	var slowest time.Duration
	for round := range 5 {
		text := fmt.Sprintf("%d/1m", 60+round)
		writer.publish(text)
		began := time.Now()
		policy.shows(text)
		revision := ask[string](writer, `document.body.innerText.match(/Written as revision (\d+)/)[1]`)
		app.shows("revision " + revision)
		home.shows(revision)
		if slowest = time.Since(began); slowest < 3*time.Second {
			break
		}
	}
	t.Logf("shown elsewhere after %s", slowest)
	assert.Less(t, slowest, 3*time.Second, "in the best of five rounds")
	for _, b := range []*tab{writer, policy, app, home} {
		b.calm()
	}
}

// A form that somebody else has overtaken shows both versions, and nothing that was typed is lost.
func TestStaleForm(t *testing.T) {
	for _, scripts := range []bool{true, false} {
		t.Run(fmt.Sprintf("scripts=%t", scripts), func(t *testing.T) {
			s := newStage(t)
			s.write(policies.Policy{Text: "50/1m"})
			anna, ben := s.enter("anna", rights.Owner), s.enter("ben", rights.Owner)
			if !scripts {
				anna.withoutScripts()
			}
			anna.goTo("/apps/pay/policies/search")
			anna.fill("#text", "70/1m burst 7")
			anna.click("#editing details:nth-of-type(1) summary")
			anna.fill("#tiers", "gold: 700/1m")
			anna.click("#editing details:nth-of-type(2) summary")
			anna.fill("#keys", "user=9: blocked")
			ben.goTo("/apps/pay/policies/search")
			ben.publish("60/1m")
			if scripts {
				anna.shows("ben has changed this policy since you opened it")
				assert.Equal(t, "70/1m burst 7", ask[string](anna, `document.querySelector("#text").value`), "what is typed stays")
				assert.Equal(t, "keys", ask[string](anna, `document.activeElement.id`), "and so does the focus")
			}
			anna.click("#editing button.first")
			anna.shows("ben has changed this policy meanwhile")
			assert.Equal(t, "70/1m burst 7", ask[string](anna, `document.querySelector("#text").value`))
			assert.Equal(t, "gold: 700/1m", ask[string](anna, `document.querySelector("#tiers").value`))
			assert.Equal(t, "user=9: blocked", ask[string](anna, `document.querySelector("#keys").value`))
			text := anna.text()
			for _, part := range []string{"60/1m", "70/1m burst 7", "tier gold: 700/1m", "key user=9: blocked"} {
				assert.Contains(t, text, part)
			}
			if scripts {
				anna.accessible("the stale form")
			}
			anna.click("#editing button.first")
			anna.await(`location.pathname.endsWith("/review") && document.body.innerText.includes("Nothing is written yet.")`)
			anna.click("form[action$='/write'] button.first")
			anna.shows("Written as revision")
			anna.calm()
			ben.calm()
		})
	}
}

// Going back from the review to the editor keeps what was typed, and mistakes are shown while they are typed.
func TestEditor(t *testing.T) {
	s := newStage(t)
	s.write(policies.Policy{Text: "50/1m"})
	b := s.enter("anna", rights.Owner)
	b.goTo("/apps/pay/policies/search")
	b.fill("#text", "70/1m")
	b.click("#editing button.first")
	b.await(`location.pathname.endsWith("/review")`)
	b.shows("70/1m")
	b.click("button[formaction]")
	b.await(`location.pathname.endsWith("/edit") && document.querySelector("#text")`)
	assert.Equal(t, "70/1m", ask[string](b, `document.querySelector("#text").value`))
	assert.Equal(t, "1", strings.TrimSpace(ask[string](b, `document.querySelector("input[name=revision]").value`)))
	b.calm()
}

// A page whose server is gone says that it is old.
func TestServerGone(t *testing.T) {
	s := newStage(t)
	s.write(policies.Policy{Text: "50/1m"})
	b := s.enter("anna", rights.Owner)
	b.goTo("/apps/pay/policies/search")
	b.fill("#text", "70/1m")
	assert.NotContains(t, b.text(), "has not answered")
	b.calm()
	s.server.CloseClientConnections()
	s.server.Close()
	b.shows("The server has not answered since")
	assert.Equal(t, "70/1m", ask[string](b, `document.querySelector("#text").value`))
	assert.Contains(t, b.text(), "the first one", "what was there is still shown")
}

// Somebody whose session ends elsewhere is led to the login.
func TestSessionEndsElsewhere(t *testing.T) {
	s := newStage(t)
	s.write(policies.Policy{Text: "50/1m"})
	b := s.enter("anna", rights.Owner)
	b.goTo("/apps/pay")
	status := ask[int](b, `fetch("/logout", {method: "POST"}).then(r => r.status)`)
	assert.Equal(t, 200, status)
	b.await(`location.pathname === "/login" && location.search === "?next=%2Fapps%2Fpay"`)
	b.calm()
}
