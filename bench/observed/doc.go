// Package observed holds the readers of an observe.Observer against each other and against what they are built on:
// Prometheus and OpenTelemetry beside each other, which no user's program needs to have.
package observed
