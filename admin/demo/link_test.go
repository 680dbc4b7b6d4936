package demo_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/demo"
)

// The link signs in once, and the session shows the home page with both services.
func TestLink(t *testing.T) {
	d, _ := start(t, demo.Options{Quiet: true})
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	t.Cleanup(browser.CloseIdleConnections)
	enter := func(browser *http.Client) (status int, page string) {
		form := url.Values{"secret": {d.Link.Code}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+"/link", strings.NewReader(form.Encode()))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", d.URL)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		res, err := browser.Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(text)
	}
	status, home := enter(browser)
	require.Equal(t, http.StatusOK, status)
	for _, text := range []string{"This is a demo", "/apps/shop", "/apps/partners"} {
		assert.Contains(t, home, text)
	}
	again := new(http.Client)
	t.Cleanup(again.CloseIdleConnections)
	status, page := enter(again)
	assert.NotEqual(t, http.StatusOK, status, "twice")
	assert.NotContains(t, page, "/apps/shop")
}
