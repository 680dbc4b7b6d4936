// Package api serves the record of a fleet's policies over HTTP. Its paths, bodies and errors are those of package
// adminapi, and /openapi.json describes them.
package api
