// Package fleettest has the tests of a whole fleet: a weir-admin and a Redis as processes, and services that obey.
package fleettest
