// Package policies has the documents by which a fleet changes the policies of its programs while they run: one
// [Document] for each app, as values and as JSON. The packages below it bring documents to a program: filesource from a
// file, and redissource from Redis. [Layers] puts several before each other.
//
// A document changes what the code of an app has named and brings no policies of its own. docs/fleet.md in the
// repository shows the way of a limit from the first look at it to its enforcement.
//
// # Reading and writing
//
// [Decode] reads a document and demands that all of it is right; it is for documents that a person has written. The
// error is [Mistakes]: each [Mistake] has a Line, a Column and a Path, and Mistakes.In adds the File. [DecodePublished]
// is for programs that obey: one text with a mistake spoils no other policy. [Document.Encode] writes the bytes of
// [Format] 1, which are canonical, so that their digests may be compared. The bounds are [MaxText], [MaxPolicies],
// [MaxTiers], [MaxKeys], [MaxApps] and [MaxSize]. [CheckApp] and [CheckName] check names; [AllApps] is the one app that
// is none. [ParseVersion] reads what [Version.String] writes.
//
// A reader of another format makes nodes for [Build]: of the kinds [Object], with Members, [List], with Items, [Text] and
// [Number], with the text as it was written, [Other] for what no document has, and [Refused] for a value with which the
// reader has found a mistake.
//
// # Announcements
//
// A [Process] announces what it obeys: its App, ID and Name, when it Started, the version of Weir, and a [RuleState] for
// each rule, of which some may be Omitted. It has the format [ProcessFormat] and at most [MaxProcessSize] bytes, and
// [DecodeProcess] reads it. Its texts are anybody's, so print them quoted. Of each rule it has a [Meaning]: [Code],
// [Fleet], [Trial], [Unusable], [Unread] or [Stale].
package policies
