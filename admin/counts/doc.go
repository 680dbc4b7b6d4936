// Package counts looks at what the services of an app have counted for one key, and forgets it. Looking takes nothing
// and writes nothing.
package counts
