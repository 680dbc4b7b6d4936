package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-go/weir/internal/adminapi"
)

// OfApp names the app of a path. Like the next three it is exported for huma, which looks into no other.
type OfApp struct {
	App string `path:"app" doc:"Name of an app, or * for all that have no policy of the same name"`
}

// OfPolicy names the policy of a path.
type OfPolicy struct {
	OfApp
	Name string `path:"name" doc:"Name of a policy"`
}

// Writing has what each change may say.
type Writing struct {
	Why   string `query:"why" doc:"Reason, for the history"`
	Force bool   `query:"force" doc:"Write what services say they cannot use"`
}

// Condition has the version that a change replaces.
type Condition struct {
	IfMatch     string `header:"If-Match" doc:"Revision that is changed, as in its ETag, or * for whatever there is"`
	IfNoneMatch string `header:"If-None-Match" doc:"* to create what is not there yet"`
}

// answer is a response with a body and, if it has one, a revision.
type answer[T any] struct {
	ETag string `header:"ETag"`
	Body T
}

func tagged[T any](revision int64, body T) *answer[T] {
	return &answer[T]{ETag: adminapi.ETag(revision), Body: body}
}

// encoded is a document as it is published.
type encoded struct {
	ContentType string `header:"Content-Type"`
	ETag        string `header:"ETag"`
	Body        []byte
}

type written = answer[adminapi.Written]

func (s *server) routes(api huma.API) {
	route(api, "list-apps", http.MethodGet, adminapi.PathApps, "Apps, and what is published for them", s.apps)
	route(api, "add-app", http.MethodPut, adminapi.PathApp, "Make an app known", s.addApp)
	route(api, "get-policies", http.MethodGet, adminapi.PathPolicies, "Document of an app", s.document)
	route(api, "get-policy", http.MethodGet, adminapi.PathPolicy, "Policy that belongs to an app", s.policy)
	route(api, "put-policy", http.MethodPut, adminapi.PathPolicy, "Write a policy", s.putPolicy)
	route(api, "delete-policy", http.MethodDelete, adminapi.PathPolicy, "Delete a policy", s.deletePolicy)
	route(api, "get-history", http.MethodGet, adminapi.PathHistory, "Versions of a policy", s.history)
	route(api, "rollback-policy", http.MethodPost, adminapi.PathRollback, "Write a former version of a policy", s.rollback)
	route(api, "apply-policies", http.MethodPost, adminapi.PathApply, "Write the policies of a document, all or none", s.apply)
	route(api, "adopt-app", http.MethodPost, adminapi.PathAdopt, "Make an app's document later than all that was published", s.adopt)
	route(api, "get-schema", http.MethodGet, adminapi.PathSchema, "JSON Schema of documents", s.schema)
	if s.Top != nil {
		route(api, "list-top", http.MethodGet, adminapi.PathTop, "Callers that a fleet refused most", s.top)
	}
	route(api, "list-services", http.MethodGet, adminapi.PathServices, "Processes of an app, and what they obey", s.services)
}

// route registers a handler, whose errors become problems.
func route[I, O any](api huma.API, id, method, path, summary string, handle func(context.Context, *I) (*O, error)) {
	operation := huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, MaxBodyBytes: maxBody,
		BodyReadTimeout:  bodyWithin, // huma has none for a RawBody
		SkipValidateBody: true,       // policies.Decode does, which refuses a name that stands twice
		Errors:           []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusServiceUnavailable},
	}
	huma.Register(api, operation, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, problem(err)
		}
		return out, nil
	})
}
