package record_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
)

// Two admins at once end what is due, and are killed in the middle of it again and again: each change ends once, and the
// history, the audit and its chain say so.
func TestEndsAreKilled(t *testing.T) { sqltest.Each(t, endsAreKilled) }

func endsAreKilled(t *testing.T, location string) {
	const n, rounds = 80, 8
	db := sqltest.Open(t, location)
	yesterday := newClock()
	yesterday.at.Store(time.Now().Add(-24 * time.Hour).UnixMicro())
	log := audit.New(db, audit.Options{Now: yesterday.now})
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	before := record.New(db, log)
	must(t, before, set("pay", "api", &policies.Policy{Text: "100/1m", Keys: map[string]string{"user=0": "5/1m"}}, record.Expect{}))
	for i := range n {
		must(t, before, ofKey("pay", "api", fmt.Sprint("user=", i), "blocked", yesterday.now().Add(time.Hour)))
	}

	for range rounds {
		var work sync.WaitGroup
		for range 2 {
			work.Go(func() { killed(t, location, time.Duration(rand.Int64N(int64(50*time.Millisecond)))) })
		}
		work.Wait()
	}
	today := audit.New(db, audit.Options{})
	t.Cleanup(func() { require.NoError(t, today.Close()) })
	r := record.New(db, today)
	var left []record.Temporary
	require.Eventually(t, func() bool { // once the server has noticed that who held the lock is gone
		more, err := r.EndDue(t.Context())
		left = append(left, more...)
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	t.Log(len(left), "of", n, "were left")
	assert.Equal(t, policies.Policy{Text: "100/1m", Keys: map[string]string{"user=0": "5/1m"}}, *holds(t, r, "pay", "api"))

	past, err := r.History(t.Context(), "pay", "api", 0, 1000)
	require.NoError(t, err)
	assert.Len(t, past, 1+2*n)
	rows, err := today.List(t.Context(), audit.Filter{Apps: []string{"pay"}, Action: "end"})
	require.NoError(t, err)
	ended := map[string]int{}
	for _, row := range rows {
		ended[row.Key]++
	}
	assert.Len(t, rows, n)
	assert.Len(t, ended, n, "each key once")
	report, err := today.Verify(t.Context())
	require.NoError(t, err)
	assert.Nil(t, report.Fault)
	assert.Equal(t, int64(1+2*n), report.Rows)
}

// killed lets another process end what is due, and kills it after a time.
func killed(t *testing.T, location string, after time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), endEnv+"="+location)
	out, err := cmd.StdoutPipe()
	if !assert.NoError(t, err) || !assert.NoError(t, cmd.Start()) {
		return
	}
	lines := bufio.NewScanner(out)
	if assert.True(t, lines.Scan()) {
		assert.Equal(t, "ready", lines.Text())
	}
	<-time.After(after)
	assert.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
}
