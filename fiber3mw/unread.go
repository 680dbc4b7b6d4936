package fiber3mw

import (
	"reflect"

	"github.com/gofiber/fiber/v3"
)

// skipsRoutes is the field of Fiber's context that is set while the middleware of Use is called for something that the
// server could not read, before the ErrorHandler answers: then routes are left out. Nothing that is exported says so.
const skipsRoutes = "skipNonUseRoutes"

var skipsRoutesIndex = func() []int {
	field, _ := reflect.TypeFor[fiber.DefaultCtx]().FieldByName(skipsRoutes)
	return field.Index
}()

// unread reports whether c is not of a request, but of bytes that the server could not read as the header of one, such
// as those of a body whose sender has left. Nothing is counted for these: the request to which they belonged was
// counted, and nobody may be there to wait. A request whose header could be read is one, whatever its body is.
func unread(c fiber.Ctx) bool {
	if len(c.Request().Header.RawHeaders()) > 0 { // nearly always; requests that have no header at all are rare
		return false
	}
	context := reflect.Indirect(reflect.ValueOf(c))
	var skips reflect.Value
	if _, ok := c.(*fiber.DefaultCtx); ok && skipsRoutesIndex != nil {
		skips = context.FieldByIndex(skipsRoutesIndex)
	} else if context.Kind() == reflect.Struct { // a custom context, which embeds Fiber's
		skips = context.FieldByName(skipsRoutes)
	}
	return skips.Kind() == reflect.Bool && skips.Bool()
}
