// Package preview says what a change of a policy would do before anybody makes it: the difference, what holds after it in
// words, what becomes of what was counted, and how the busiest keys would fare. It changes nothing and writes nothing.
package preview
