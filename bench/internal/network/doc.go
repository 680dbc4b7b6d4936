// Package network puts a server on this machine further away, for programs and tests: each round trip takes at least a
// delay longer. On Linux a process of its own sees to that, which has to be woken twice: 1 ms becomes 1.1 to 1.25 ms. It
// uses the processors of this machine as well, more for answers that come one by one than for those that come together.
// On other systems a goroutine does it, which waits for a processor behind all others, and is late by up to a
// millisecond.
package network
