// Package redissource brings the policies of a fleet to its programs through Redis: a [policies.Document] for each app,
// in one hash.
package redissource
