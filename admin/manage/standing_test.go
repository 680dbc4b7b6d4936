package manage_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
)

// While Run runs, nobody waits for what services announce: they have what was read last, and it is read again.
func TestNobodyWaitsForAnnouncements(t *testing.T) {
	t.Parallel()
	reads, goOn := make(chan string), make(chan struct{})
	a := start(t, sqltest.New(t), func(o *manage.Options) {
		services := o.Services
		o.Services = func(ctx context.Context, app string) ([]*policies.Process, int, error) {
			select {
			case reads <- app:
			case <-ctx.Done():
				return nil, 0, ctx.Err()
			}
			select {
			case <-goOn:
			case <-ctx.Done():
				return nil, 0, ctx.Err()
			}
			return services(ctx, app)
		}
	})
	anna := a.person("anna", rights.Owner, "pay")
	change := make(chan error, 1)
	go func() {
		_, err := a.PutPolicy(t.Context(), anna, "pay", "api", text("20/1h"), create)
		change <- err
	}()
	<-reads
	goOn <- struct{}{}
	require.NoError(t, <-change)
	a.announce("api", "api: 10/1h")
	a.sleep(time.Minute)

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	defer func() {
		stop()
		<-done
	}()
	assert.Equal(t, "pay", <-reads, "at the start")
	goOn <- struct{}{}
	processes := func() int {
		all, err := a.Apps(t.Context(), anna, "", 0)
		require.NoError(t, err)
		require.Len(t, all.Apps, 1)
		require.NotNil(t, all.Apps[0].Health)
		return all.Apps[0].Health.Processes
	}
	require.Eventually(t, func() bool { return processes() == 1 }, time.Minute, time.Millisecond)

	// A list is kept for those who ask again.
	listed := make(chan int, 1)
	list := func() {
		s, err := a.Services(t.Context(), anna, "pay")
		if assert.NoError(t, err) {
			listed <- len(s.Processes)
		}
	}
	go list()
	<-reads
	goOn <- struct{}{}
	require.Equal(t, 1, <-listed)

	a.announce("login", "login: 5/1m")
	a.sleep(5 * time.Second)
	require.Equal(t, 1, processes())
	list()
	require.Equal(t, 1, <-listed)
	assert.Equal(t, "pay", <-reads, "somebody has looked")
	require.Equal(t, 1, processes(), "while it is read")
	goOn <- struct{}{}
	require.Eventually(t, func() bool { return processes() == 2 }, time.Minute, time.Millisecond)
	list()
	require.Equal(t, 2, <-listed)
}

// Names that are asked for and are no apps do not keep the announcements of apps from being kept.
func TestNamesThatAreNoApps(t *testing.T) {
	reads := map[string]int{}
	a := start(t, sqltest.New(t), func(o *manage.Options) {
		o.Services = func(_ context.Context, app string) ([]*policies.Process, int, error) {
			reads[app]++
			return nil, 0, nil
		}
	})
	root := a.person("root", rights.Admin)
	code := func(app string) {
		_, err := a.CodeOf(t.Context(), root, app, "api")
		assert.Equal(t, http.StatusNotFound, status(err))
	}
	for i := range 1000 {
		code(fmt.Sprint("none-", i))
	}
	a.sleep(time.Second)
	for range 3 {
		code("pay")
	}
	assert.Equal(t, 1, reads["pay"])
}
