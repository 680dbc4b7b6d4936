// Package record keeps the policies of a fleet, and their history, in a database.
package record
