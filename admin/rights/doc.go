// Package rights decides who may do what to the limits of a fleet: one table of actions, with the least role that each
// of them needs, and one function that reads it, for the API and the page alike. It knows neither a database nor HTTP.
package rights
