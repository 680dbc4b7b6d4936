package adminapi

// The paths of the API. A path that changes something takes the query parameter reason, and those that write policies
// also force and emergency. It says in the header If-Match which revision it changes, or in "If-None-Match: *" that
// there is none yet, but for those marked with "no revision". A change waits up to a second until it is published.
const (
	PathApps        = "/v1/apps"                // GET: Apps; after, limit
	PathApp         = "/v1/apps/{app}"          // GET: AppView; PUT with Settings, DELETE: Written
	PathAdopt       = "/v1/apps/{app}/adopt"    // POST: Written; no revision
	PathAppRollback = "/v1/apps/{app}/rollback" // POST with a Rollback: Written
	PathServices    = "/v1/apps/{app}/services" // GET: Services
	PathGrants      = "/v1/apps/{app}/grants"   // GET, PUT: Grants

	PathPolicies  = "/v1/apps/{app}/policies"                   // GET: a document, with owned what apply takes; its ETag is the revision of the app
	PathPolicy    = "/v1/apps/{app}/policies/{name}"            // GET: Held; PUT with a Policy, DELETE: Written
	PathHistory   = "/v1/apps/{app}/policies/{name}/history"    // GET: History; before, limit
	PathPreview   = "/v1/apps/{app}/policies/{name}/preview"    // POST with an AskPreview: Preview; no revision
	PathRollback  = "/v1/apps/{app}/policies/{name}/rollback"   // POST with a Rollback: Written
	PathTakeOver  = "/v1/apps/{app}/policies/{name}/take-over"  // POST: Written; no revision
	PathTrial     = "/v1/apps/{app}/policies/{name}/trial"      // PUT with a Trial: Written
	PathTemporary = "/v1/apps/{app}/policies/{name}/temporary"  // PUT with a Temporary, DELETE: Written
	PathUsage     = "/v1/apps/{app}/policies/{name}/usage"      // GET: Usage; minutes
	PathKeys      = "/v1/apps/{app}/policies/{name}/keys"       // GET: Keys; PUT with a KeyNumbers: Written
	PathReset     = "/v1/apps/{app}/policies/{name}/keys/reset" // POST with an OfKey: 204; no revision
	PathLook      = "/v1/apps/{app}/keys/look"                  // POST with an OfKey: Looks; no revision

	PathApply     = "/v1/apply"                  // POST with a document: Written; dry_run, prune
	PathProposals = "/v1/proposals"              // GET: Proposals; app, state, after, limit
	PathApprove   = "/v1/proposals/{id}/approve" // POST: Written; no revision
	PathReject    = "/v1/proposals/{id}/reject"  // POST: 204; no revision

	PathAudit   = "/v1/audit"            // GET: Audit; app, policy, person, action, emergency, after, limit
	PathSeen    = "/v1/audit/{seq}/seen" // POST: 204; no revision
	PathTokens  = "/v1/tokens"           // GET: Tokens; POST with a NewToken: MadeToken; no revision
	PathToken   = "/v1/tokens/{id}"      // DELETE: 204; no revision
	PathPresets = "/v1/presets"          // GET: Presets
	PathMe      = "/v1/me"               // GET: Me
	PathSearch  = "/v1/search"           // POST with a Search: Found; no revision
	PathCheck   = "/v1/check"            // POST with a Policy: Checked; no revision
	PathTop     = "/v1/top/{policy}"     // GET: Top; prefix, minutes, limit
	PathSchema  = "/v1/schema"           // GET: the JSON Schema of documents

	// These need no rights.
	PathOpenAPI = "/openapi.json" // GET: the description of the API
	PathHealthz = "/healthz"      // GET: 204 as long as the process serves
	PathReadyz  = "/readyz"       // GET: 204 if the database answers, or else 503
)

// MaxLimit is the number of entries that a list has at most. Of a longer one, the header Link of each answer has the
// path of the next.
const MaxLimit = 200
