package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// crowded returns an API in which a name is a token, and what sends it a request.
func crowded(
	t *testing.T, services func(context.Context, string) ([]*policies.Process, int, error),
) func(who, method, path string, body io.Reader) *httptest.ResponseRecorder {
	t.Helper()
	r, log := recordtest.WithAudit(t, sqltest.New(t))
	manager, err := manage.New(manage.Options{Record: r, Audit: log, Publisher: &quiet{}, Services: services})
	require.NoError(t, err)
	handler, err := api.New(api.Options{Manager: manager, Authenticate: func(r *http.Request) (*rights.Person, error) {
		name := r.Header.Get("Authorization")
		return &rights.Person{ID: name, Name: name, Admin: true}, nil
	}})
	require.NoError(t, err)
	return func(who, method, path string, body io.Reader) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), method, path, body)
		request.Header.Set("Authorization", who)
		request.Header.Set("If-Match", "*")
		request.Header.Set(adminapi.HeaderReason, "a test")
		handler.ServeHTTP(w, request)
		return w
	}
}

// Requests for processes, again and again while Redis does not answer, keep nobody from a change.
func TestChangesWhileNobodyKnowsTheProcesses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	send := crowded(t, func(within context.Context, _ string) ([]*policies.Process, int, error) {
		select {
		case <-ctx.Done():
		case <-within.Done():
		}
		return nil, 0, errors.New("no answer")
	})
	require.Equal(t, http.StatusOK, send("anna", http.MethodPut, "/v1/apps/pay", strings.NewReader("{}")).Code)
	var all sync.WaitGroup
	answered := make(chan int, 100)
	for i := range 100 {
		all.Go(func() {
			answered <- send([]string{"anna", "bob", "carl"}[i%3], http.MethodGet, "/v1/apps/pay/services", nil).Code
		})
	}
	for range 100 - 8 { // the others wait
		assert.Equal(t, http.StatusServiceUnavailable, <-answered)
	}
	w := send("dora", http.MethodPut, apiPath, strings.NewReader(`{"text":"1/1m"}`))
	assert.Equal(t, http.StatusOK, w.Code, w.Body)
	cancel()
	all.Wait()
}

// One token cannot take all places.
func TestPlacesForOthers(t *testing.T) {
	send := crowded(t, func(context.Context, string) ([]*policies.Process, int, error) { return nil, 0, nil })
	never, end := io.Pipe()
	var all sync.WaitGroup
	refused := make(chan int, 100)
	for range 100 {
		all.Go(func() {
			if w := send("anna", http.MethodPut, apiPath, io.MultiReader(strings.NewReader("{"), never)); w.Code == http.StatusServiceUnavailable {
				refused <- w.Code
			}
		})
	}
	for range 100 - 48 {
		<-refused
	}
	w := send("bob", http.MethodPut, apiPath, strings.NewReader(`{"text":"1/1m"}`))
	assert.Equal(t, http.StatusOK, w.Code, w.Body)
	require.NoError(t, end.Close())
	all.Wait()
	w = send("anna", http.MethodPut, apiPath, strings.NewReader(`{"text":"2/1m"}`))
	assert.Equal(t, http.StatusOK, w.Code, w.Body)
}

// A crowd waits for places, but not for ever, and what is beyond is refused at once.
func TestACrowdWaits(t *testing.T) {
	r, log := recordtest.WithAudit(t, sqltest.New(t))
	manager, err := manage.New(manage.Options{
		Record: r, Audit: log, Publisher: &quiet{},
		Services: func(context.Context, string) ([]*policies.Process, int, error) { return nil, 0, nil },
	})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		wait time.Duration // before those who have places leave
		want map[int]int
	}{
		"short": {time.Second, map[int]int{http.StatusServiceUnavailable: 600 - 512, http.StatusUnauthorized: 512}},
		"long":  {time.Minute, map[int]int{http.StatusServiceUnavailable: 600 - 64, http.StatusUnauthorized: 64}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := make(chan struct{})
				handler, err := api.New(api.Options{Manager: manager, Strangers: many, Authenticate: func(*http.Request) (*rights.Person, error) {
					<-end
					return nil, errors.New("a stranger")
				}})
				require.NoError(t, err)
				answered := make(chan int, 600)
				for range cap(answered) {
					go func() {
						w := httptest.NewRecorder()
						handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/apps", nil))
						answered <- w.Code
					}()
				}
				synctest.Wait()
				assert.Len(t, answered, 600-512)
				<-time.After(test.wait)
				close(end)
				got := map[int]int{}
				for range cap(answered) {
					got[<-answered]++
				}
				assert.Equal(t, test.want, got)
			})
		})
	}
}

// A body that does not end gives its place back.
func TestSlowBodies(t *testing.T) {
	a := start(t)
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(a.URL, "http://"))
	require.NoError(t, err)
	defer connection.Close()
	_, err = fmt.Fprintf(connection, "PUT %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIf-Match: *\r\nContent-Length: 100\r\n\r\n{",
		apiPath, secret)
	require.NoError(t, err)
	require.NoError(t, connection.SetReadDeadline(time.Now().Add(25*time.Second))) // it takes 5 s
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusRequestTimeout, response.StatusCode)
}

// An app whose inventory is something else hides the processes of no other app.
func TestABrokenInventoryHidesNoOther(t *testing.T) {
	send := crowded(t, func(_ context.Context, app string) ([]*policies.Process, int, error) {
		if app != "web" {
			return nil, 0, errors.New("WRONGTYPE")
		}
		return []*policies.Process{{App: app, ID: "1", Rules: []policies.RuleState{{Policy: "api", Code: "1/1m sliding-window"}}}}, 0, nil
	})
	w := send("anna", http.MethodPut, apiPath, strings.NewReader(`{"text":"1/1m","apps":["a","b","c","d","web"]}`))
	assert.Equal(t, http.StatusUnprocessableEntity, w.Code, w.Body)
	assert.Contains(t, w.Body.String(), "web")
}
