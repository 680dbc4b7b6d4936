// Package publish keeps the documents in Redis equal to those of a record of policies. It compares the two again and
// again, and writes what differs: what Redis has lost is back within seconds, and several publishers of one record
// disturb nobody.
package publish
