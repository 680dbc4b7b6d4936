// Package site puts the parts of the admin together, the same for the command that serves and for the demo: who people
// are, what they may do, the API and the page, behind one handler.
package site
