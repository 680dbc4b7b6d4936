package adminapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// A change that is sent elsewhere is not made: it would become a question, whose answer looks like that of a change.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		if len(asked) == 1 {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte(`{"app":"pay","name":"api","revision":7,"policy":{}}`))
	}))
	defer server.Close()
	client := &adminapi.Client{URL: server.URL, HTTP: server.Client()}
	_, err := client.Put(t.Context(), "pay", "api", policies.Policy{Text: "1/1m"}, adminapi.Write{})
	assert.Equal(t, http.StatusFound, adminapi.StatusOf(err))
	assert.Equal(t, []string{"PUT /v1/apps/pay/policies/api"}, asked)
}
