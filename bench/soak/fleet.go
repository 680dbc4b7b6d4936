package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/hosttest"
)

// answerTime is the longest time that a member may take for an answer: it waits for its callers and for a processor.
const answerTime = time.Minute

// enlist starts a member, which ends with tb.
func enlist(tb testing.TB, m membership) *hosttest.Process {
	tb.Helper()
	p := hosttest.Start(tb, memberEnv, m)
	context.AfterFunc(tb.Context(), func() { _ = p.Kill() }) // it may be stopped, or somebody waits for its answer
	return p
}

// ask sends a line to all members, and returns their answers.
func ask[T any](w *world, line string) []T {
	for _, p := range w.fleet {
		_, err := fmt.Fprintln(p.In, line)
		require.NoError(w.tb, err, "a member of the fleet has ended")
	}
	all := make([]T, len(w.fleet))
	for i, p := range w.fleet {
		late := time.AfterFunc(answerTime, func() { _ = p.Kill() })
		err := p.Read(&all[i])
		late.Stop()
		require.NoError(w.tb, err, "a member of the fleet has ended, or has not answered for %v", answerTime)
	}
	return all
}

// statuses sends a line that is answered with a status to all members.
func (w *world) statuses(line string) []status { return ask[status](w, line) }
