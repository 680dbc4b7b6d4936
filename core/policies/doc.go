// Package policies has the documents by which a fleet changes the policies of its programs while they run: one
// [Document] for each app, as values and as JSON. The packages below it bring documents to a program: filesource from a
// file, and redissource from Redis.
package policies
