//go:build race

// Package race tells tests whether the race detector runs, under which everything
// is slower and allocates more.
package race

// Enabled tells whether the race detector runs.
const Enabled = true
