package nethttp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// like returns w with the optional methods that the writer inside has, and no others:
// handlers find out what a writer can do by its type.
func (w *writer) like() http.ResponseWriter {
	if _, flushes := w.ResponseWriter.(http.Flusher); !flushes {
		return w
	}
	if _, hijacks := w.ResponseWriter.(http.Hijacker); hijacks { // HTTP/1
		return hijacker{flusher{w}}
	}
	if _, pushes := w.ResponseWriter.(http.Pusher); pushes { // HTTP/2
		return pusher{flusher{w}}
	}
	return flusher{w}
}

// flusher implements http.Flusher.
type flusher struct{ *writer }

func (w flusher) Flush() { _ = w.FlushError() }

// hijacker implements http.Hijacker. A connection that is taken over is no longer the
// server's, as after 101.
type hijacker struct{ flusher }

func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.implied(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// pusher implements http.Pusher.
type pusher struct{ flusher }

func (w pusher) Push(target string, o *http.PushOptions) error {
	return w.ResponseWriter.(http.Pusher).Push(target, o) //nolint:forcetypeassert // like has asked
}

// writer watches what is sent. What else the writer inside can do,
// http.ResponseController finds by Unwrap.
type writer struct {
	http.ResponseWriter
	status    int // 0 until it is known
	otherwise int // the status of a body that comes without one, or 0 for the server's choice
	bytes     int64
	before    func() // is called before the header is sent
}

// Unwrap lets http.ResponseController find the writer below.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
		w.beforeHeader()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	w.begin()
	w.implied(http.StatusOK)
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// WriteString implements io.StringWriter, which spares a copy.
func (w *writer) WriteString(s string) (int, error) {
	w.begin()
	w.implied(http.StatusOK)
	n, err := io.WriteString(w.ResponseWriter, s)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, with which the server sends files.
func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	w.begin()
	n, err := io.Copy(w.ResponseWriter, src)
	if w.bytes += n; n > 0 { // nothing from an empty source
		w.implied(http.StatusOK)
	}
	return n, err
}

// FlushError is called by http.ResponseController. A flush that is not supported sends
// nothing.
func (w *writer) FlushError() error {
	w.begin()
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		w.implied(http.StatusOK)
	}
	return err
}

// implied notes the status that is sent where the handler sets none.
func (w *writer) implied(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// begin is called before a body, whose status may not have been set.
func (w *writer) begin() {
	switch {
	case w.status != 0:
	case w.otherwise != 0:
		w.WriteHeader(w.otherwise)
	default:
		w.beforeHeader()
	}
}

func (w *writer) beforeHeader() {
	if w.before != nil {
		w.before()
	}
}

// final is the answer's status and size, now that the handler is done.
func (w *writer) final(panicked bool) (status int, bytes int64) {
	switch {
	case w.status != 0:
		return w.status, w.bytes
	case panicked:
		return http.StatusInternalServerError, w.bytes
	default:
		return http.StatusOK, w.bytes
	}
}
