package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/internal/apitest"
	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/redistest"
)

const secret = "0123456789abcdefghij"

// anna is an admin with the secret, and the only person that is known.
func anna(r *http.Request) (*rights.Person, error) {
	if r.Header.Get("Authorization") != "Bearer "+secret {
		return nil, people.ErrToken
	}
	return &rights.Person{ID: "local:anna", Name: "anna", Admin: true}, nil
}

// admin is a server with a record of its own.
type admin struct {
	*adminapi.Client
	rdb *redis.Client
}

// many are numbers that no test reaches.
const many = "100000/1s"

func start(t *testing.T, mods ...func(*manage.Options)) admin {
	t.Helper()
	server := redistest.Single(t)
	rdb := server.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	r, log := recordtest.WithAudit(t, sqltest.New(t))
	publisher := publish.New(r, rdb, nil)
	options := manage.Options{
		Record: r, Audit: log, Publisher: publisher,
		Services: func(ctx context.Context, app string) ([]*policies.Process, int, error) {
			return redissource.Processes(ctx, rdb, app)
		},
	}
	for _, mod := range mods {
		mod(&options)
	}
	manager, err := manage.New(options)
	require.NoError(t, err)
	handler, err := api.New(api.Options{Manager: manager, Authenticate: anna, Strangers: many, Known: many})
	require.NoError(t, err)
	web := httptest.NewServer(handler)
	client := web.Client()
	client.Transport = apitest.Check(t, client.Transport, web.URL)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); publisher.Run(ctx) }()
	t.Cleanup(func() {
		web.Close()
		cancel()
		<-done
	})
	return admin{&adminapi.Client{URL: web.URL, Token: secret, HTTP: client}, rdb}
}

func TestAPutIsPublished(t *testing.T) {
	a := start(t)
	written, err := a.Put(t.Context(), "pay", "api", policies.Policy{Text: "200/1m"}, adminapi.Write{Create: true, Reason: "first"})
	require.NoError(t, err)
	assert.Equal(t, int64(1), written.Revision)
	require.Eventually(t, func() bool { // published within a second, unless the machine is busy
		_, err := a.rdb.HGet(t.Context(), redissource.Key("pay"), redissource.FieldRevision).Result()
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	encoded, err := a.rdb.HGet(t.Context(), redissource.Key("pay"), redissource.FieldDocument).Result()
	require.NoError(t, err)
	document, err := policies.Decode([]byte(encoded))
	require.NoError(t, err)
	assert.Equal(t, "200/1m", document.Policies["api"].Text)
	held, err := a.Policy(t.Context(), "pay", "api")
	require.NoError(t, err)
	assert.Equal(t, adminapi.Held{App: "pay", Name: "api", Revision: 1, Policy: adminapi.Policy{Text: "200/1m"}}, held)
}

func TestStrangersAreRefused(t *testing.T) {
	a := start(t)
	a.Token = "another secret of length"
	_, err := a.Apps(t.Context())
	assert.Equal(t, http.StatusUnauthorized, adminapi.StatusOf(err))
	_, err = api.New(api.Options{})
	require.Error(t, err)
}

func redisZ(id string) redis.Z { return redis.Z{Score: float64(time.Now().Unix()), Member: id} }
