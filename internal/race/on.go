//go:build race

// Package race lets tests know whether the race detector runs, under which everything
// is slower and allocates more.
package race

// Enabled reports whether the race detector runs.
const Enabled = true
