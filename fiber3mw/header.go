package fiber3mw

import (
	"bytes"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/utils/v2"

	"github.com/weir-go/weir/core/guard"
)

// Get makes one line of several, because Set replaces the first alone.
func (x *exchange) Get(name string) string {
	h := &x.response().Header
	if name == fiber.HeaderContentType { // it has a place of its own
		return string(h.ContentType())
	}
	lines := 0
	for _, key := range h.PeekKeys() { // Peek takes longer to say that there is none, which is nearly always so
		if string(key) == name {
			lines++
		}
	}
	switch lines {
	case 0:
		return ""
	case 1:
		return string(h.Peek(name))
	}
	value := string(bytes.Join(h.PeekAll(name), []byte(", ")))
	h.Del(name)
	h.Set(name, value)
	return value
}

// Set spares the bytes of both a copy, because fasthttp makes its own.
func (x *exchange) Set(name, value string) {
	x.response().Header.SetCanonical(utils.UnsafeBytes(name), utils.UnsafeBytes(value))
}

// Del removes a field.
func (x *exchange) Del(name string) { x.response().Header.Del(name) }

// BeforeHeader does nothing, because Fiber sends the header after the handlers.
func (*exchange) BeforeHeader(func()) {}

// Scratch may be used, because Set makes copies.
func (x *exchange) Scratch() *guard.Scratch { return &x.scratch }
