package ginmw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
)

// docs/gateways.md says which spellings of a path Gin takes for "/x/login", beside those that a check takes for it.
func TestSpellings(t *testing.T) {
	t.Parallel()
	asIs, raw := gin.New(), gin.New()
	raw.UseRawPath = true
	for _, engine := range []*gin.Engine{asIs, raw} {
		engine.Any("/x/login", func(*gin.Context) {})
	}
	status := func(engine *gin.Engine, uri string) int {
		w := httptest.NewRecorder()
		engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, uri, nil))
		return w.Code
	}
	for uri, want := range map[string]int{
		"/x/login": 200, "/x/%6Cogin": 200, "/x//login": 404, "/x/./login": 404, "/x%2Flogin": 200, "/x%2flogin": 200,
		"/x/login%2F": 301, "/x/login%2F..%2Flogin": 404, "/x/login;p=1": 404, "/x;p=1/login": 404, "/x/login%3Bp=1": 404,
		"/x/login%20": 404, "/x/login/": 301, "/x/LOGIN": 404,
	} {
		assert.Equal(t, want, status(asIs, uri), uri)
	}
	assert.Equal(t, http.StatusNotFound, status(raw, "/x%2Flogin"))
}
