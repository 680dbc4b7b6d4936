// Package page serves the pages of weir-admin: the same things as package api, for people. It decides nothing: what may
// be done, and how, is in package manage.
//
// Each screen has a file and a template of the same name. Pages work without scripts; with them, htmx asks every two
// seconds whether what is shown has changed (render.go), and while somebody types what a policy says (check.go).
package page
