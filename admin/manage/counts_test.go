package manage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/redistest"
)

// counting is an admin of services that count in a Redis, under the prefix "shop".
type counting struct {
	*admin
	redis *redistest.Server
	store *redisstore.Store
}

func startCounting(t *testing.T, mods ...func(*manage.Options)) *counting {
	t.Helper()
	server := redistest.Single(t)
	stores, err := counts.New(counts.Options{Redis: server.Client(t)})
	require.NoError(t, err)
	store, err := redisstore.New(server.Client(t), redisstore.Options{Prefix: "shop", Deadline: time.Minute})
	require.NoError(t, err)
	return &counting{start(t, sqltest.New(t), append(mods, func(o *manage.Options) { o.Counts = stores })...), server, store}
}

// counts lets a process of an app announce a policy under a prefix.
func (c *counting) counts(app, prefix, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := core.MustParse(code).Name()
	c.processes[app] = append(c.processes[app], &policies.Process{
		ID: fmt.Sprint(app, code, prefix), Name: app + ":1", Rules: []policies.RuleState{
			{Policy: name, Code: code, Now: code, Meaning: policies.Code, Location: stats.Location{Prefix: prefix}, Place: "GET /", Key: "user(uid)"},
		},
	})
	c.at = c.at.Add(time.Minute) // announcements are read again
}

func (c *counting) uses(code, key string, units int64) {
	c.t.Helper()
	res, err := c.store.Take(c.t.Context(), core.Take{Policy: core.MustParse(code), Key: key, Cost: units})
	require.NoError(c.t, err)
	require.True(c.t, res.Allowed())
}

// actions returns what the audit has of an app: actions with their keys.
func (c *counting) actions(app string) (all []string) {
	c.t.Helper()
	rows, err := c.Audit(c.t.Context(), c.person("root", rights.Admin), manage.WhichAudit{App: app})
	require.NoError(c.t, err)
	for _, r := range rows.Rows {
		all = append(all, r.Action+" "+r.Key)
	}
	return all
}

// Operators look at a key and give it its limit back; each look is in the audit, but not each reload of a page.
func TestLookAndReset(t *testing.T) {
	t.Parallel()
	c := startCounting(t)
	operator, viewer, stranger := c.person("olga", rights.Operator, "pay"), c.person("vera", rights.Viewer, "pay"), c.person("else", rights.Owner, "other")
	_, err := c.PutPolicy(t.Context(), c.person("anna", rights.Owner, "pay"), "pay", "api", adminapi.Policy{Text: "20/1h", Keys: map[string]string{"user=8": "3/1h"}}, create)
	require.NoError(t, err)
	c.counts("pay", "shop", "api: 10/1h")
	c.uses("api: 10/1h", "user=7", 10)

	_, err = c.Look(t.Context(), viewer, "pay", "user=7", "")
	assert.Equal(t, http.StatusForbidden, status(err))
	_, err = c.Look(t.Context(), stranger, "pay", "user=7", "")
	assert.Equal(t, http.StatusNotFound, status(err))
	_, err = c.Look(t.Context(), operator, "pay", "", "")
	assert.Equal(t, http.StatusUnprocessableEntity, status(err))
	for range 3 {
		looks, err := c.Look(t.Context(), operator, "pay", "user=7", "")
		require.NoError(t, err)
		require.Len(t, looks.Looks, 1)
		look := looks.Looks[0]
		require.Empty(t, look.Why)
		assert.Equal(t, "refused", look.Explanation.Outcome)
		assert.Equal(t, "shop", look.Prefix)
		assert.Zero(t, look.Left)
		assert.Equal(t, int64(20), look.Of)
	}
	looks, err := c.Look(t.Context(), operator, "pay", "user=8", "")
	require.NoError(t, err)
	assert.Equal(t, "3/1h", looks.Looks[0].Numbers)
	assert.Equal(t, int64(3), looks.Looks[0].Left)

	reason := manage.Write{Any: true, Reason: "the customer has paid"}
	assert.Equal(t, http.StatusUnprocessableEntity, status(c.ResetKey(t.Context(), operator, "pay", "api", "user=7", manage.Write{Any: true})))
	assert.Equal(t, http.StatusForbidden, status(c.ResetKey(t.Context(), viewer, "pay", "api", "user=7", reason)))
	assert.Equal(t, http.StatusNotFound, status(c.ResetKey(t.Context(), operator, "pay", "login", "user=7", reason)))
	require.NoError(t, c.ResetKey(t.Context(), operator, "pay", "api", "user=7", reason))
	looks, err = c.Look(t.Context(), operator, "pay", "user=7", "")
	require.NoError(t, err)
	assert.Equal(t, int64(20), looks.Looks[0].Left)
	c.sleep(time.Hour)
	_, err = c.Look(t.Context(), operator, "pay", "user=7", "")
	require.NoError(t, err)
	assert.Equal(t, []string{"look user=7", "reset-key user=7", "look user=8", "look user=7", "set "}, c.actions("pay")[:5])

	for range 2 { // with a reason it is another row, once
		_, err = c.Look(t.Context(), operator, "pay", "user=7", "ticket 12")
		require.NoError(t, err)
	}
	rows, err := c.Audit(t.Context(), c.person("root", rights.Admin), manage.WhichAudit{App: "pay", Limit: 2})
	require.NoError(t, err)
	require.Len(t, rows.Rows, 2)
	assert.Equal(t, "ticket 12", rows.Rows[0].Reason)
	assert.Empty(t, rows.Rows[1].Reason)

	c.redis.Kill()
	began := time.Now()
	looks, err = c.Look(t.Context(), operator, "pay", "user=7", "")
	require.NoError(t, err)
	t.Logf("without Redis: %v", time.Since(began))
	assert.Less(t, time.Since(began), 10*time.Second)
	assert.Contains(t, looks.Looks[0].Why, "the store in which the services count")
	err = c.ResetKey(t.Context(), operator, "pay", "api", "user=7", reason)
	assert.Equal(t, http.StatusServiceUnavailable, status(err))
	assert.NotContains(t, err.Error(), "user=7")
}

// What a process of one app announces opens no counts of another: an admin says who counts where.
func TestCountsOfOthers(t *testing.T) {
	t.Parallel()
	c := startCounting(t)
	admin := c.person("root", rights.Admin)
	ofBoth, ofPay := c.person("both", rights.Operator, "pay", "shop"), c.person("olga", rights.Operator, "pay")
	for _, app := range []string{"pay", "shop"} {
		_, err := c.PutApp(t.Context(), admin, app, adminapi.Settings{}, create)
		require.NoError(t, err)
		c.counts(app, "shop", "login: 10/1h")
	}
	c.uses("login: 10/1h", "user=7", 10)
	why := func(who *rights.Person) string {
		t.Helper()
		c.sleep(time.Minute)
		looks, err := c.Look(t.Context(), who, "pay", "user=7", "")
		require.NoError(t, err)
		require.Len(t, looks.Looks, 1)
		if err := c.ResetKey(t.Context(), who, "pay", "login", "user=7", anyway); looks.Looks[0].Why == "" {
			require.NoError(t, err)
		} else {
			require.Contains(t, []int{http.StatusConflict, http.StatusForbidden}, status(err))
			assert.NotContains(t, err.Error(), "shop\" and")
		}
		return looks.Looks[0].Why
	}
	assert.Contains(t, why(ofBoth), "shared with other apps")
	bind := func(app string) {
		t.Helper()
		_, err := c.PutApp(t.Context(), admin, app, adminapi.Settings{Counts: []string{"shop"}}, anyway)
		require.NoError(t, err)
	}
	bind("shop")
	assert.Contains(t, why(ofBoth), "shared with other apps")
	bind("pay")
	assert.Contains(t, why(ofPay), "another app counts there as well")
	assert.EqualValues(t, 1, c.redis.Client(t).DBSize(t.Context()).Val(), "nothing was forgotten")
	assert.Empty(t, why(ofBoth))
	assert.Zero(t, c.redis.Client(t).DBSize(t.Context()).Val())
}

// A preview says what changes, for whom and where, to each as much as they may see.
func TestPreview(t *testing.T) {
	t.Parallel()
	c := startCounting(t)
	owner, viewer := c.person("anna", rights.Owner, "pay", "shop"), c.person("vera", rights.Viewer, "pay")
	_, err := c.PutPolicy(t.Context(), owner, "pay", "api", adminapi.Policy{
		Text: "10/1h", Tiers: map[string]string{"pro": "100/1h"}, Keys: map[string]string{"user=secret": "3/1h"}, Apps: []string{"shop"},
	}, create)
	require.NoError(t, err)
	c.counts("pay", "pay", "api: 50/1h")
	c.counts("shop", "shop", "api: 50/1h sliding-log")
	store, err := redisstore.New(c.redis.Client(t), redisstore.Options{Prefix: "pay", Deadline: time.Minute})
	require.NoError(t, err)
	_, err = store.Take(t.Context(), core.Take{Policy: core.MustParse("api: 10/1h"), Key: "user=7", Cost: 10})
	require.NoError(t, err)

	ask := manage.AskPreview{Policy: adminapi.Policy{
		Text: "20/1h; epoch 1", Tiers: map[string]string{"pro": "200/1h"}, Keys: map[string]string{"user=secret": "3/1h"}, Apps: []string{"shop"},
	}, Keys: []string{"user=7", "user=secret"}}
	found, err := c.Preview(t.Context(), owner, "pay", "api", ask)
	require.NoError(t, err)
	require.Empty(t, found.Why)
	assert.True(t, found.Difference.Afresh)
	assert.Contains(t, found.Words, "at once: 20 units")
	assert.Contains(t, found.Words, "tier pro: 200/1h; epoch 1; at once: 200 units, in any 1h: 399 units at most")
	assert.Contains(t, found.Words, "and other numbers or options for 1 further tiers and keys")
	assert.Contains(t, found.Kept[0], "starts afresh")
	require.Len(t, found.Keys, 4, "each in no tier, and in pro")
	assert.Equal(t, "pro", found.Keys[1].Tier)
	assert.Equal(t, int64(200), found.Keys[1].After.Limit)
	assert.Equal(t, manage.KeyState{Policy: "10/1h", Limit: 10, RetryAfter: found.Keys[0].Before.RetryAfter}, found.Keys[0].Before)
	assert.Positive(t, found.Keys[0].Before.RetryAfter)
	assert.Equal(t, manage.KeyState{Policy: "20/1h; epoch 1", Allowed: true, Limit: 20, Remaining: 20}, found.Keys[0].After)
	assert.Equal(t, int64(3), found.Keys[2].After.Limit)
	assert.Equal(t, int64(3), found.Keys[3].After.Limit, "a key goes before a tier")
	assert.Zero(t, found.Refused)
	require.NotEmpty(t, found.CannotUse)
	assert.Equal(t, "shop", found.CannotUse[0].App, "its processes have another algorithm")

	// A viewer sees no key, of whatever change, and no name of another app.
	_, err = c.Preview(t.Context(), viewer, "pay", "api", ask)
	assert.Equal(t, http.StatusForbidden, status(err))
	ask.Keys, ask.Policy.Keys = nil, nil
	found, err = c.Preview(t.Context(), viewer, "pay", "api", ask)
	require.NoError(t, err)
	encoded, err := json.Marshal(found)
	require.NoError(t, err)
	assert.NotContains(t, string(encoded), "secret")
	assert.NotContains(t, string(encoded), "shop")

	// What is less than was used refuses.
	ask = manage.AskPreview{Policy: text("5/1h fixed-window"), Keys: []string{"user=7"}}
	found, err = c.Preview(t.Context(), owner, "pay", "api", ask)
	require.NoError(t, err)
	assert.Equal(t, "pay", found.CannotUse[0].App)
	for _, wrong := range []manage.AskPreview{{Policy: text("five")}, {Policy: text("5/1h"), Keys: []string{""}}, {Policy: text("5/1h"), Keys: make([]string, 21)}} {
		_, err = c.Preview(t.Context(), owner, "pay", "api", wrong)
		assert.Equal(t, http.StatusUnprocessableEntity, status(err))
	}

	c.redis.Pause(t)
	began := time.Now()
	found, err = c.Preview(t.Context(), owner, "pay", "api", manage.AskPreview{Policy: text("20/1h"), Keys: []string{"user=7"}})
	require.NoError(t, err)
	t.Logf("without Redis: %v", time.Since(began))
	assert.Contains(t, found.Why, "the store in which the services count")
	assert.Contains(t, found.Words, "at once: 20 units")
	assert.Less(t, time.Since(began), 10*time.Second)
}

// The busiest keys are those that services report. A person who may see no key sees how many of them are refused.
func TestPreviewOfTheBusiest(t *testing.T) {
	t.Parallel()
	c := startCounting(t)
	tell := &telling{now: c.now(), counts: stats.UsageCounts{Admitted: 10}}
	for i := range 5 {
		key := fmt.Sprintf("user=%d", i)
		tell.busiest = append(tell.busiest, stats.KeyCount{Key: key, Count: uint64(9 - i)})
		c.uses("api: 10/1h sliding-log", key, int64(6-i))
	}
	h, err := usage.New(usage.Options{
		Apps: func(context.Context) ([]string, error) { return []string{"pay"}, nil }, Read: tell.read, Now: func() time.Time { return tell.now },
	})
	require.NoError(t, err)
	require.NoError(t, h.Round(t.Context()))
	stores, err := counts.New(counts.Options{Redis: c.redis.Client(t)})
	require.NoError(t, err)
	c.admin = start(t, sqltest.New(t), func(o *manage.Options) { o.Usage, o.Counts = h, stores })
	c.counts("pay", "shop", "api: 10/1h sliding-log")
	operator, viewer := c.person("olga", rights.Operator, "pay"), c.person("vera", rights.Viewer, "pay")
	_, err = c.PutPolicy(t.Context(), c.person("anna", rights.Owner, "pay"), "pay", "api", text("10/1h sliding-log"), create)
	require.NoError(t, err)
	found, err := c.Preview(t.Context(), operator, "pay", "api", manage.AskPreview{Policy: text("4/1h sliding-log"), Keys: []string{"user=0"}})
	require.NoError(t, err)
	require.Empty(t, found.Why)
	require.Len(t, found.Keys, 5, "one of them was typed")
	assert.Equal(t, []int{4, 3, 0}, []int{found.Busiest, found.Refused, found.Idle}, "%+v", found.Keys)
	assert.Equal(t, "user=4", found.Keys[4].Key)
	assert.Equal(t, int64(8), found.Keys[4].Before.Remaining)
	assert.Equal(t, int64(2), found.Keys[4].After.Remaining)
	found, err = c.Preview(t.Context(), viewer, "pay", "api", manage.AskPreview{Policy: text("4/1h sliding-log")})
	require.NoError(t, err)
	assert.Empty(t, found.Keys)
	assert.Equal(t, []int{5, 3}, []int{found.Busiest, found.Refused})
	assert.Equal(t, []string{"look ", "look user=0", "set "}, c.actions("pay")[:3], "one row for all that services report, and one for what was typed")
}

// A Redis that has stood still for both what services announce and what they count costs a person some two seconds.
func TestLookWhileRedisHangs(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	c := startCounting(t, func(o *manage.Options) {
		services := o.Services
		o.Services = func(ctx context.Context, app string) ([]*policies.Process, int, error) {
			if hangs.Load() {
				<-ctx.Done()
				return nil, 0, ctx.Err()
			}
			return services(ctx, app)
		}
	})
	_, err := c.PutApp(t.Context(), c.person("root", rights.Admin), "other", adminapi.Settings{}, create)
	require.NoError(t, err)
	_, err = c.PutPolicy(t.Context(), c.person("anna", rights.Owner, "pay"), "pay", "api", text("10/1h"), create)
	require.NoError(t, err)
	c.counts("pay", "shop", "api: 10/1h")
	operator := c.person("olga", rights.Operator, "pay")
	look := func() manage.Look {
		t.Helper()
		looks, err := c.Look(t.Context(), operator, "pay", "user=7", "")
		require.NoError(t, err)
		require.Len(t, looks.Looks, 1)
		return looks.Looks[0]
	}
	require.Empty(t, look().Why)
	c.redis.Pause(t)
	hangs.Store(true)
	c.sleep(time.Minute)
	for range 2 {
		began := time.Now()
		assert.Contains(t, look().Why, "the store in which the services count")
		t.Logf("%v", time.Since(began))
		assert.Less(t, time.Since(began), 10*time.Second)
	}
}
