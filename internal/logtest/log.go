// Package logtest keeps what is logged, so that a test can look at it.
package logtest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Log is the lines that were logged. The zero Log is empty. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer, for a handler.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// Logger returns a logger whose lines l keeps.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// With returns the lines that contain text.
func (l *Log) With(text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}
