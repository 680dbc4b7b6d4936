// Package adminapi has the paths, bodies and errors of the API of a fleet's record of policies, for its server and for
// its clients, and such a client.
package adminapi
