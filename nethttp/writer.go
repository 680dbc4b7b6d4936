package nethttp

import (
	"io"
	"net/http"
)

// writer watches what is sent. It does not hide what the writer inside can do:
// http.ResponseController finds it by Unwrap.
type writer struct {
	http.ResponseWriter
	status int // 0 until it is known
	bytes  int64
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	w.implied()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// WriteString implements io.StringWriter, which spares a copy.
func (w *writer) WriteString(s string) (int, error) {
	w.implied()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, with which the server sends files.
func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	w.implied()
	n, err := io.Copy(w.ResponseWriter, src)
	w.bytes += n
	return n, err
}

// FlushError is what http.ResponseController calls.
func (w *writer) FlushError() error {
	w.implied()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// implied notes the status that is sent where the handler sets none.
func (w *writer) implied() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// sent is the answer's status and size, now that the handler is done.
func (w *writer) sent(panicked bool) (status int, bytes int64) {
	switch {
	case w.status != 0:
		return w.status, w.bytes
	case panicked:
		return http.StatusInternalServerError, w.bytes
	default:
		return http.StatusOK, w.bytes
	}
}
