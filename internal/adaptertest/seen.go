package adaptertest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// Events have the route, the key and the context of the framework's requests, and nothing of a request is kept. They say
// where it was decided. A handler sees the Result of its request.
func testSeen(t *testing.T, a Adapter) {
	var events []guard.Event
	var told, left, users []any
	var from []guard.From
	g := newGuard(t, "api: 5/1h", guard.Config{
		Rule:    guard.Rule{Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())},
		Results: true,
		Observe: func(e guard.Event) {
			events = append(events, e)
			_, route, _ := strings.Cut(e.Key(), "&route=")
			told = append(told, e.Route(), route != "", e.Result.Remaining)
			assert.Equal(t, e.Key(), string(e.AppendKey(nil)))
			users, from = append(users, e.Context().Value(ContextKey{})), append(from, e.From)
		},
	})
	items := a.items()
	items.Handler.Do = func(ctx context.Context) {
		res, ok := guard.FromContext(ctx)
		left = append(left, ok, res.Remaining)
	}
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{items}})
	for id := range 2 {
		name := string(rune('a' + id))
		s.get("/items/"+name, UserInContext, name).admitted(t, 5, 4-id)
	}
	pattern := a.Pattern("/items/{id}")
	assert.Equal(t, []any{pattern, true, int64(4), pattern, true, int64(3)}, told)
	assert.Equal(t, []any{true, int64(4), true, int64(3)}, left)
	assert.Equal(t, []any{"a", "b"}, users)
	assert.Equal(t, []guard.From{guard.FromProcess, guard.FromProcess}, from)
	require.Len(t, events, 2)
	for _, e := range events {
		assert.Equal(t, context.Background(), e.Context())
		assert.Empty(t, e.Route())
		assert.Empty(t, e.Key())
	}
}
