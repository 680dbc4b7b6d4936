// Package usage keeps what the services of a fleet have counted, for the last 24 hours by the minute, in the memory of the
// admin. It reads what processes announce, all apps in turn, and never looks at a count in Redis.
//
// Processes announce sums since they began to count, so a minute is the difference of two readings. The first reading of a
// process that was there before counts nothing; a sum that has become smaller has begun again. What cannot be known is
// said: minutes in which nothing was read, and processes that have ended between two readings.
//
// Memory is bounded, whatever is announced: each app has an equal part of [Options].Budget, so that no app takes that of
// another. What does not fit is kept in steps of ten minutes, the oldest first, and then for a shorter time.
package usage
