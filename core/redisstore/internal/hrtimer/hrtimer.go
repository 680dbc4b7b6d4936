// Package hrtimer sleeps for parts of a millisecond, and keeps neither a processor nor a thread meanwhile.
//
// time.Sleep does so only in a process that has something else to do: on Linux, the runtime of an idle one waits for its
// timers in epoll_wait, in whole milliseconds.
package hrtimer

// MaxSleeping is the number of goroutines that can sleep at a time: flights of two servers, of which each has
// DefaultFlights. On Linux each takes a file descriptor, which is kept for the next one.
const MaxSleeping = 16
