package redistest

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
)

// Monitor returns the commands that the server runs while do does, by their names in lower case, those of scripts
// included: what MONITOR shows, from every client.
func (s *Server) Monitor(t testing.TB, do func()) map[string]int {
	t.Helper()
	ctx, cancel := patient(t)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		t.Fatalf("redistest: monitor: %v", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20) // a script travels whole
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil || !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("redistest: monitor: %v, %q", err, lines.Text())
	}
	do()
	const end = "redistest: the monitor ends"
	s.text(t, "echo", end)
	seen := map[string]int{}
	for lines.Scan() {
		if strings.Contains(lines.Text(), end) {
			return seen
		}
		_, command, ok := strings.Cut(lines.Text(), `] "`)
		if name, _, quoted := strings.Cut(command, `"`); ok && quoted {
			seen[strings.ToLower(name)]++
		}
	}
	t.Fatalf("redistest: monitor: %v", lines.Err())
	return nil
}
