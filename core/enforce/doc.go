// Package enforce stands around a decision: its Limiter asks a store, does what the policy says when the store fails,
// waits for turns, holds permits, and gives back what was not used. It knows no request and no framework; package guard
// is built on it.
package enforce
