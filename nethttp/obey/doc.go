// Package obey is an [http.RoundTripper] that keeps to the limits of the servers it calls.
package obey
