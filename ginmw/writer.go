package ginmw

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// writer calls before, before the header is sent.
type writer struct {
	gin.ResponseWriter
	before func()
}

// begin is called by all that may send the header.
func (w *writer) begin() gin.ResponseWriter {
	if !w.Written() {
		w.before()
	}
	return w.ResponseWriter
}

func (w *writer) WriteHeaderNow()                   { w.begin().WriteHeaderNow() }
func (w *writer) Write(p []byte) (int, error)       { return w.begin().Write(p) }
func (w *writer) WriteString(s string) (int, error) { return w.begin().WriteString(s) }
func (w *writer) Flush()                            { w.begin().Flush() }

// Unwrap lets http.ResponseController find the writer below.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
