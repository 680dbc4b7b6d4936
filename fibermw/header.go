package fibermw

import (
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/fiberhttp"
)

// Get makes one line of several, because Set replaces the first alone.
func (x *exchange) Get(name string) string { return fiberhttp.Get(&x.c.Response().Header, name) }

// Set replaces the value of a field.
func (x *exchange) Set(name, value string) { fiberhttp.Set(&x.c.Response().Header, name, value) }

// Del removes a field.
func (x *exchange) Del(name string) { x.c.Response().Header.Del(name) }

// BeforeHeader does nothing, because Fiber sends the header after the handlers.
func (*exchange) BeforeHeader(func()) {}

// Scratch may be used, because Set makes copies.
func (x *exchange) Scratch() *guard.Scratch { return &x.scratch }
