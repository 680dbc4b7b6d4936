package adminapi

// The paths of the API that the command calls; those of the admin's module are in its package api. A path that changes
// something takes the header HeaderReason, which must not be empty, and those that write policies take the query
// parameters force and emergency. It says in the header If-Match which revision it changes, or in "If-None-Match: *" that
// there is none yet, but for those marked with "no revision". A change waits up to a second until it is published.
const (
	PathApps     = "/v1/apps"                                // GET: Apps; after, limit
	PathApp      = "/v1/apps/{app}"                          // GET: AppView; PUT with Settings, DELETE: Written
	PathAdopt    = "/v1/apps/{app}/adopt"                    // POST: Written; no revision
	PathServices = "/v1/apps/{app}/services"                 // GET: Services
	PathPolicies = "/v1/apps/{app}/policies"                 // GET: a document, with owned what apply takes; its ETag is the revision of the app
	PathPolicy   = "/v1/apps/{app}/policies/{name}"          // GET: Held; PUT with a Policy, DELETE: Written
	PathHistory  = "/v1/apps/{app}/policies/{name}/history"  // GET: History; after, limit
	PathRollback = "/v1/apps/{app}/policies/{name}/rollback" // POST with a Rollback: Written
	PathApply    = "/v1/apply"                               // POST with a document: Written; dry_run, prune
	PathTop      = "/v1/top/{policy}"                        // GET: Top; prefix, minutes, limit
	PathSchema   = "/v1/schema"                              // GET: the JSON Schema of documents
	PathOpenAPI  = "/openapi.json"                           // GET: the description of the API
)

// MaxLimit is the number of entries that a list has at most. Of a longer one, the header Link of each answer has the
// path of the next.
const MaxLimit = 200
