package api

// The paths of the API beside those of package adminapi; see there what each change takes.
const (
	PathAppRollback = "/v1/apps/{app}/rollback"                   // POST with a Rollback: Written
	PathGrants      = "/v1/apps/{app}/grants"                     // GET, PUT: Grants
	PathPreview     = "/v1/apps/{app}/policies/{name}/preview"    // POST with an AskPreview: Preview; no revision
	PathTakeOver    = "/v1/apps/{app}/policies/{name}/take-over"  // POST: Written; no revision
	PathTemporary   = "/v1/apps/{app}/policies/{name}/temporary"  // PUT with a Temporary, DELETE: Written
	PathUsage       = "/v1/apps/{app}/policies/{name}/usage"      // GET: Usage; minutes
	PathKeys        = "/v1/apps/{app}/policies/{name}/keys"       // GET: Keys; PUT with a KeyNumbers: Written
	PathReset       = "/v1/apps/{app}/policies/{name}/keys/reset" // POST with an OfKey: 204; no revision
	PathLook        = "/v1/apps/{app}/keys/look"                  // POST with an OfKey: Looks; no revision
	PathProposals   = "/v1/proposals"                             // GET: Proposals; app, state, after, limit
	PathApprove     = "/v1/proposals/{id}/approve"                // POST: Written; no revision
	PathReject      = "/v1/proposals/{id}/reject"                 // POST: 204; no revision
	PathAudit       = "/v1/audit"                                 // GET: Audit; app, policy, person, action, emergency, after, limit
	PathSeen        = "/v1/audit/{seq}/seen"                      // POST: 204; no revision
	PathImports     = "/v1/imports"                               // GET: Imports
	PathTokens      = "/v1/tokens"                                // GET: Tokens; POST with a NewToken: MadeToken; no revision
	PathToken       = "/v1/tokens/{id}"                           // DELETE: 204; no revision
	PathPeople      = "/v1/people"                                // GET: People; after, limit
	PathBarred      = "/v1/people/{person}/barred"                // PUT, DELETE: 204; no revision
	PathSessions    = "/v1/people/{person}/sessions"              // DELETE: 204; no revision
	PathPresets     = "/v1/presets"                               // GET: Presets
	PathMe          = "/v1/me"                                    // GET: Me
	PathSearch      = "/v1/search"                                // POST with a Search: Found; no revision
	PathCheck       = "/v1/check"                                 // POST with a Policy: Checked; no revision
	PathHealthz     = "/healthz"                                  // GET: 204 as long as the process serves
	PathReadyz      = "/readyz"                                   // GET: 204 if the database answers, or else 503
)
