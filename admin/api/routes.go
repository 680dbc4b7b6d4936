package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/internal/adminapi"
)

// OfApp names the app of a path.
type OfApp struct {
	App string `path:"app" doc:"Name of an app, or * for all that have no policy of the same name"`
}

// OfPolicy names the policy of a path.
type OfPolicy struct {
	OfApp
	Name string `path:"name" doc:"Name of a policy"`
}

// Reasoned has the reason of whatever writes. It stands in a header, since URLs are in the logs of proxies.
type Reasoned struct {
	Reason string `header:"Weir-Reason" maxLength:"3072" doc:"Reason, for the audit, percent-encoded where it is not ASCII; a change without one is refused"`
}

// Resolve decodes the reason.
func (r *Reasoned) Resolve(huma.Context) []error {
	r.Reason = adminapi.DecodeReason(r.Reason)
	return nil
}

// Writing has what each change of policies may say.
type Writing struct {
	Reasoned
	Force     bool `query:"force" doc:"Write what services say they cannot use"`
	Emergency bool `query:"emergency" doc:"Write at once where the app wants another owner to approve; it stands out until another owner has looked at it"`
}

// Paged has the part of a list that is wanted.
type Paged struct {
	After string `query:"after" maxLength:"128" doc:"Where the list goes on, as the header Link has it"`
	Limit int    `query:"limit" minimum:"1" maximum:"200" default:"200" doc:"Most entries of the answer"`
}

// after returns the number after which a list goes on, 0 for its beginning.
func (p Paged) after() (int64, error) {
	if p.After == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(p.After, 10, 64)
	if err != nil || n < 1 {
		return 0, refusal(http.StatusUnprocessableEntity, `found an "after" that is no number of an entry; take the header Link of the answer before`)
	}
	return n, nil
}

// answer is a response with a body and, if it has one, a revision.
type answer[T any] struct {
	Status int
	ETag   string `header:"ETag"`
	Link   string `header:"Link"`
	Body   T
}

func plain[T any](body *T, err error) (*answer[T], error) {
	if err != nil {
		return nil, err
	}
	return &answer[T]{Status: http.StatusOK, Body: *body}, nil
}

func tagged[T any](body *T, revision int64, err error) (*answer[T], error) {
	out, err := plain(body, err)
	if err == nil && revision > 0 {
		out.ETag = adminapi.ETag(revision)
	}
	return out, err
}

// listed is plain for a list of n entries, whose last one is named last: if there may be more, Link has their address.
func listed[T any](body *T, err error, p Paged, n int, last, path string, query url.Values) (*answer[T], error) {
	out, err := plain(body, err)
	if err == nil && n == p.Limit {
		query.Set("after", last)
		query.Set("limit", strconv.Itoa(p.Limit))
		out.Link = "<" + path + "?" + query.Encode() + `>; rel="next"`
	}
	return out, err
}

// encoded is a document as it is published.
type encoded struct {
	ContentType string `header:"Content-Type"`
	ETag        string `header:"ETag"`
	Body        []byte
}

type written = answer[adminapi.Written]

// wrote answers a change: of a policy with its revision, of an app with that of the app.
func wrote(w *adminapi.Written, err error) (*written, error) {
	if err != nil {
		return nil, err
	}
	out, err := tagged(w, w.Revision, nil)
	if revision := cmp.Or(w.SettingsRevision, w.PolicyRevision); revision > 0 {
		out.ETag = adminapi.ETag(revision)
	}
	if w.Proposal != "" {
		out.Status, out.ETag = http.StatusAccepted, ""
	}
	return out, err
}

// nothing answers what has been done and has nothing to say.
type nothing struct{}

func done(err error) (*nothing, error) { return nil, err }

func (s *server) routes(all huma.API) {
	api := logged{all, s.log}
	get, put, post, remove := http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete
	route(api, "list-apps", get, adminapi.PathApps, "Apps, and what is published for them", s.apps)
	route(api, "get-app", get, adminapi.PathApp, "App on one page", s.app)
	route(api, "put-app", put, adminapi.PathApp, "Make an app known, or change its settings", s.putApp)
	route(api, "delete-app", remove, adminapi.PathApp, "Delete an app with its policies", s.deleteApp)
	route(api, "adopt-app", post, adminapi.PathAdopt, "Make an app's document later than all that was published", s.adopt)
	route(api, "rollback-app", post, PathAppRollback, "Write former versions of an app's policies", s.rollbackApp)
	route(api, "list-services", get, adminapi.PathServices, "Processes of an app, and what they obey", s.services)
	route(api, "get-grants", get, PathGrants, "Rights on an app", s.grants)
	route(api, "put-grants", put, PathGrants, "Write the rights on an app", s.putGrants)

	route(api, "get-policies", get, adminapi.PathPolicies, "Document of an app", s.publishedDocument, sends[document]("application/json"))
	route(api, "get-policy", get, adminapi.PathPolicy, "Policy that belongs to an app", s.policy)
	route(api, "put-policy", put, adminapi.PathPolicy, "Write a policy", s.putPolicy, takes[adminapi.Policy])
	route(api, "delete-policy", remove, adminapi.PathPolicy, "Delete a policy", s.deletePolicy)
	route(api, "get-history", get, adminapi.PathHistory, "Versions of a policy", s.history)
	route(api, "preview-policy", post, PathPreview, "What a change would do", s.preview)
	route(api, "rollback-policy", post, adminapi.PathRollback, "Write a former version of a policy", s.rollback)
	route(api, "take-over-policy", post, PathTakeOver, "Write a limit of the code into the record, as it is", s.takeOver)
	route(api, "put-temporary", put, PathTemporary, "Write numbers that hold for a time", s.putTemporary)
	route(api, "delete-temporary", remove, PathTemporary, "End them before their time", s.endTemporary)
	route(api, "apply-policies", post, adminapi.PathApply, "Write the policies of a document, all or none", s.apply, takes[document])
	route(api, "list-proposals", get, PathProposals, "Changes that wait for another owner", s.proposals)
	route(api, "approve-proposal", post, PathApprove, "Make the change of a proposal", s.approve)
	route(api, "reject-proposal", post, PathReject, "End a proposal", s.reject, empty)

	route(api, "get-usage", get, PathUsage, "What services have counted of a policy", s.usage)
	route(api, "list-keys", get, PathKeys, "Keys that have numbers of their own, and the busiest", s.keys)
	route(api, "put-key", put, PathKeys, "Give a key numbers of its own, or take them away", s.putKey)
	route(api, "reset-key", post, PathReset, "Give a key the whole limit back", s.resetKey, empty)
	route(api, "look-at-key", post, PathLook, "Key as each policy of an app counts it", s.lookAtKey)

	route(api, "list-audit", get, PathAudit, "What people did and were refused", s.audit)
	route(api, "see-emergency", post, PathSeen, "Note that an emergency change was looked at", s.seen, empty)
	route(api, "list-imports", get, PathImports, "Reports of the last imports", s.imports)
	route(api, "list-tokens", get, PathTokens, "Tokens, without their secrets", s.tokens)
	route(api, "make-token", post, PathTokens, "Make a token, whose secret is in this answer alone", s.makeToken)
	route(api, "delete-token", remove, PathToken, "End a token", s.deleteToken, empty)
	route(api, "list-people", get, PathPeople, "People who have logged in or have a role", s.people)
	route(api, "bar-person", put, PathBarred, "Put somebody out", s.bar, empty)
	route(api, "unbar-person", remove, PathBarred, "Let somebody in again", s.unbar, empty)
	route(api, "end-sessions", remove, PathSessions, "Log somebody out everywhere", s.endSessions, empty)
	route(api, "get-me", get, PathMe, "Who asks, and what they may do", s.me)
	route(api, "search", post, PathSearch, "Apps, policies and keys by a part of their names", s.search)
	route(api, "check-policy", post, PathCheck, "What a policy says, and its mistakes", s.check, takes[adminapi.Policy])
	route(api, "list-presets", get, PathPresets, "Texts that are often wanted", s.presets)
	route(api, "get-schema", get, adminapi.PathSchema, "JSON Schema of documents", s.schema, sends[any]("application/schema+json"))
	if s.HasTop() {
		route(api, "list-top", get, adminapi.PathTop, "Callers that a fleet refused most", s.top)
	}
}

// logged is an API whose failures are in a log.
type logged struct {
	huma.API

	log *slog.Logger
}

// route registers a handler, whose errors become problems.
func route[I, O any](
	api logged, id, method, path, summary string, handle func(context.Context, *I) (*O, error), mods ...func(huma.API, *huma.Operation),
) {
	operation := huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, MaxBodyBytes: maxBody,
		BodyReadTimeout: bodyWithin, // huma has none for a RawBody

		RejectUnknownQueryParameters: true,
	}
	for _, mod := range mods {
		mod(api, &operation)
	}
	if body := operation.RequestBody; body != nil { // huma describes a RawBody as no more than bytes
		of := body.Content["application/json"].Schema
		defer func() { body.Content["application/json"].Schema = of }()
	}
	answers := operation.Responses
	operation.Responses = nil
	defer func() {
		for status, of := range answers { // and the same of encoded documents
			described(api, path, method).Responses[status].Content = of.Content
		}
		switch any((*O)(nil)).(type) {
		case *written, *answer[manage.Grants]: // it may become a proposal
			if method != http.MethodGet {
				all := described(api, path, method).Responses
				all["202"] = &huma.Response{Description: "Proposed, for another owner to approve", Content: all["200"].Content}
			}
		}
	}()
	huma.Register(api, operation, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			p := manage.Problem(err)
			if p.Status >= http.StatusInternalServerError && !errors.Is(err, p) && !errors.Is(err, context.Canceled) {
				api.log.ErrorContext(ctx, "api: a request has failed", "operation", id, "error", err)
			}
			return nil, p
		}
		return out, nil
	})
}

// described returns the description of an operation.
func described(api huma.API, path, method string) *huma.Operation {
	of := api.OpenAPI().Paths[path]
	switch method {
	case http.MethodGet:
		return of.Get
	case http.MethodPut:
		return of.Put
	case http.MethodDelete:
		return of.Delete
	}
	return of.Post
}

// sends describes the answer of an operation as a T, which is encoded already.
func sends[T any](contentType string) func(huma.API, *huma.Operation) {
	return func(api huma.API, o *huma.Operation) {
		o.Responses = map[string]*huma.Response{"200": {Content: map[string]*huma.MediaType{
			contentType: {Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")},
		}}}
	}
}

// empty describes an answer without a body.
func empty(_ huma.API, o *huma.Operation) { o.DefaultStatus = http.StatusNoContent }

// takes describes the body of a request as a T, which core/policies reads.
func takes[T any](api huma.API, o *huma.Operation) {
	o.SkipValidateBody = true
	o.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")},
	}}
}

// refusal returns a problem of the request itself.
func refusal(status int, detail string) error {
	return &adminapi.Problem{Title: http.StatusText(status), Status: status, Detail: detail}
}
