// Package rightstest has the table of every path and verb of the API and of the page, and of what each kind of person gets
// there. It fails for a path without a row.
package rightstest
