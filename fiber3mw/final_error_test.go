package fiber3mw_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	recovery "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/keyfunc"
)

// wrapped is an error whose Unwrap panics if it is nil.
type wrapped struct{ cause error }

func (*wrapped) Error() string   { return "wrapped" }
func (w *wrapped) Unwrap() error { return w.cause }

// A handler that returns a nil pointer as its error panics where the error is looked at, which gives back its permit.
func TestFinalErrorPanics(t *testing.T) {
	var seen []guard.Final
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "100/1h, 1 concurrent", Key: keyfunc.Const("all"),
		Settle: func(f guard.Final, taken int64) int64 { seen = append(seen, f); return taken },
	}})
	require.NoError(t, err)
	f := fiber.New()
	f.Use(recovery.New(), fiber3mw.Limit(g))
	var none *wrapped
	f.Get("/bad", func(fiber.Ctx) error { return none })
	f.Get("/ok", func(c fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
	var statuses []int
	for _, path := range []string{"/ok", "/bad", "/ok", "/bad", "/ok"} {
		status, _ := get(t, f, path)
		statuses = append(statuses, status)
	}
	assert.Equal(t, []int{200, 500, 200, 500, 200}, statuses)
	if assert.Len(t, seen, 5) {
		assert.Equal(t, 500, seen[1].Status)
		assert.True(t, seen[1].Panicked)
		assert.True(t, seen[1].Err == error(none), "Err is the handler's") //nolint:errorlint // it panics in errors.Is
		assert.Equal(t, 200, seen[2].Status)
		assert.False(t, seen[2].Panicked)
	}
}
