package guard_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// What holds for each route can be read in a log.
func TestDescribe(t *testing.T) {
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "100/1m", Tier: func(keyfunc.Request) string { return "" }, Tiers: map[string]string{"pro": "500/1m", "admin": "unlimited"},
		},
		Routes: map[string]guard.Rule{
			"POST /login": {Policy: "5/1m; fail closed"},
			"GET /health": {Instead: true},
			"GET /trial":  {Policy: "trial: 9/1m; shadow", Instead: true},
		},
	})
	assert.Equal(t, strings.TrimPrefix(`
POST /login  Routes["POST /login"]  post-login: 5/1m; fail closed  by ip  reject(429)
             Rule                   default: 100/1m                by ip  reject(429)  tiers admin, pro
GET /health  nothing
GET /trial   Routes["GET /trial"]   trial: 9/1m; shadow            by ip  reject(429)
GET /items   Rule                   default: 100/1m                by ip  reject(429)  tiers admin, pro
all others   Rule                   default: 100/1m                by ip  reject(429)  tiers admin, pro
`, "\n"), g.Describe([]string{"POST /login", "GET /health", "GET /trial", "GET /items"}))
}

// The order that is printed is the one in which they are asked, which is that in which they are written.
func TestDescribeOrder(t *testing.T) {
	store := newCounting(t)
	g := newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "user: 2 concurrent"},
		Rules:  []guard.Rule{{Policy: "drip: 10/1s leaky-bucket", Key: keyfunc.Const("all")}, {Policy: "all: 100/1s", Key: keyfunc.Const("all")}},
		Routes: map[string]guard.Rule{"/items/{id}": {Policy: "items: 10/1s; wait 2s"}},
		Store:  store,
	})
	v := g.Check(from(alice))
	v.Finish(guard.Final{})
	asked, _ := store.told()
	assert.Equal(t, "items permit:user drip all", asked)
	assert.Equal(t, strings.TrimPrefix(`
/items/{id}  Routes["/items/{id}"]  items: 10/1s; wait 2s     by ip          reject(429)
             Rule                   user: 2 concurrent        by ip          reject(429)
             Rules[0]               drip: 10/1s leaky-bucket  by const(all)  reject(429)
             Rules[1]               all: 100/1s               by const(all)  reject(429)
all others   Rule                   user: 2 concurrent        by ip          reject(429)
             Rules[0]               drip: 10/1s leaky-bucket  by const(all)  reject(429)
             Rules[1]               all: 100/1s               by const(all)  reject(429)
`, "\n"), g.Describe([]string{"/items/{id}"}))
}
