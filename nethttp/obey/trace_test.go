package obey_test

import (
	"os"
	"strings"
	"testing"
)

func (c *tally) trace(t *testing.T) {
	if os.Getenv("TRACE") != "" {
		os.WriteFile("/tmp/trace", []byte(strings.Join(c.statuses, "\n")), 0o600)
	}
}
