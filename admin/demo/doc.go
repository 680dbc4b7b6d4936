// Package demo runs the admin with nothing installed: its database is a file in a temporary folder, and the fleet is two
// services of different frameworks in the process, whose callers are made up. The requests are real, over the network of
// this machine. What Redis does for a fleet, an exchange in the process does here.
package demo
