// Package recipes holds what is shown in docs of weir beside other libraries: as tests, in a module of its own, so that
// none of these libraries reaches a program that uses weir.
package recipes
