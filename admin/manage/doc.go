// Package manage has a method for each thing that a person may do to the limits of a fleet. Each decides first whether
// they may, then does it, and leaves a row in the audit. The API, the page and the commands call it and translate.
package manage
