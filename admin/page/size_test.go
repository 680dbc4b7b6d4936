package page_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/internal/adminapi"
)

// With 50 apps of 200 policies and 500 processes, a page stays small: at night it may come over a telephone.
func TestSize(t *testing.T) {
	t.Parallel()
	f := newFake(fixed)
	for i := range 50 {
		f.apps = append(f.apps, manage.App{
			App:    adminapi.App{App: fmt.Sprintf("service-of-team-%02d", i), Revision: 1234, Published: true},
			Health: &manage.Health{Processes: 500, Behind: i % 3, Admitted: 123456, Refused: 1234},
		})
	}
	for i := range 200 {
		f.versions[fmt.Sprintf("policy-for-endpoint-%03d", i)] = []adminapi.Past{{
			Revision: int64(i + 10), At: fixed().Add(-time.Hour), Who: "somebody.else", Reason: "customer complains: ticket 12345", Action: "set",
			Policy: &adminapi.Policy{Text: "1000/1m burst 200, 20000/1h; wait 2s", Tiers: map[string]string{"pro": "1/1s"}},
		}}
	}
	for i := range 497 {
		p := f.processes[0]
		p.ID, p.Name = fmt.Sprintf("service-7d9c8b5f66-%03d", i), fmt.Sprintf("service-7d9c8b5f66-%03d:1", i)
		f.processes = append(f.processes, p)
	}
	for i := range 150 {
		f.code = append(f.code, manage.CodeLimit{
			Name: fmt.Sprintf("limit-of-the-code-%03d", i), Texts: []string{"1000/1m burst 200"}, Places: []string{"GET /a/long/path/{id}"}, Processes: 500,
		})
	}
	h := serve(t, f, owner)
	for _, path := range []string{"/", "/apps/pay", "/apps/pay?policies=160&code=80", "/apps/pay/policies/search"} {
		began := time.Now()
		w := get(t, h, path)
		t.Logf("%s: %d KiB in %s", path, w.Body.Len()>>10, time.Since(began))
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Less(t, w.Body.Len(), 150<<10, path)
	}
}
