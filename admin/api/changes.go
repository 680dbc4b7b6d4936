package api

import (
	"context"
	"net/url"
	"strconv"

	"github.com/weir-go/weir/admin/manage"
)

func (s *server) apply(ctx context.Context, in *struct {
	Condition
	Writing
	Dry     bool   `query:"dry_run" doc:"Answer the differences and write nothing"`
	Prune   bool   `query:"prune" doc:"Delete the policies that the document does not have"`
	RawBody []byte `contentType:"application/json"`
},
) (*written, error) {
	w, err := in.write(ctx, in.Condition, nil)
	if err != nil {
		return nil, err
	}
	return wrote(s.Apply(ctx, who(ctx), in.RawBody, in.Dry, in.Prune, w))
}

func (s *server) proposals(ctx context.Context, in *struct {
	Paged
	App   string `query:"app" doc:"App of the proposals"`
	State string `query:"state" enum:"open,approved,rejected,ended" doc:"State of the proposals"`
},
) (*answer[manage.Proposals], error) {
	which := manage.WhichProposals{App: in.App, State: in.State, After: in.After, Limit: in.Limit}
	out, err := s.Proposals(ctx, who(ctx), which)
	n, last := 0, ""
	if err == nil && len(out.Proposals) > 0 {
		n, last = len(out.Proposals), out.Proposals[len(out.Proposals)-1].ID
	}
	query := url.Values{}
	with(query, "app", in.App)
	with(query, "state", in.State)
	return listed(out, err, in.Paged, n, last, PathProposals, query)
}

// with adds a part to a query, unless it is empty.
func with(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// OfProposal names the proposal of a path.
type OfProposal struct {
	ID string `path:"id" maxLength:"64" doc:"Id of a proposal"`
}

func (s *server) approve(ctx context.Context, in *struct {
	OfProposal
	Reasoned
},
) (*written, error) {
	return wrote(s.Approve(ctx, who(ctx), in.ID, in.Reason))
}

func (s *server) reject(ctx context.Context, in *struct {
	OfProposal
	Reasoned
},
) (*nothing, error) {
	return done(s.Reject(ctx, who(ctx), in.ID, in.Reason))
}

func (s *server) audit(ctx context.Context, in *struct {
	Paged
	App       string `query:"app" doc:"App of the rows"`
	Policy    string `query:"policy" doc:"Policy of the rows"`
	Person    string `query:"person" doc:"Id of the person"`
	Action    string `query:"action" doc:"Action of the rows"`
	Emergency bool   `query:"emergency" doc:"Only emergency changes"`
},
) (*answer[manage.Audit], error) {
	after, err := in.after()
	if err != nil {
		return nil, err
	}
	out, err := s.Audit(ctx, who(ctx), manage.WhichAudit{
		App: in.App, Policy: in.Policy, Person: in.Person, Action: in.Action, Emergency: in.Emergency,
		Before: after, Limit: in.Limit,
	})
	n, last := 0, int64(0)
	if err == nil && len(out.Rows) > 0 {
		n, last = len(out.Rows), out.Rows[len(out.Rows)-1].Seq
	}
	query := url.Values{}
	with(query, "app", in.App)
	with(query, "policy", in.Policy)
	with(query, "person", in.Person)
	with(query, "action", in.Action)
	if in.Emergency {
		query.Set("emergency", "true")
	}
	return listed(out, err, in.Paged, n, strconv.FormatInt(last, 10), PathAudit, query)
}

func (s *server) imports(ctx context.Context, _ *struct{}) (*answer[manage.Imports], error) {
	return plain(s.Imports(ctx, who(ctx)))
}

func (s *server) seen(ctx context.Context, in *struct {
	Seq int64 `path:"seq" minimum:"1" doc:"Number of the row"`
	Reasoned
},
) (*nothing, error) {
	return done(s.Seen(ctx, who(ctx), in.Seq, in.Reason))
}
