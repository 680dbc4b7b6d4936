package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// maxHistory bounds the versions of one answer.
const maxHistory = 100

func (s *server) history(ctx context.Context, in *struct {
	OfPolicy
	Before int64 `query:"before" minimum:"0" doc:"Revision before which the versions are, 0 for all"`
	Limit  int   `query:"limit" minimum:"0" maximum:"100" doc:"Most versions of the answer"`
},
) (*answer[adminapi.History], error) {
	limit := in.Limit
	if limit == 0 {
		limit = maxHistory
	}
	versions, err := s.Record.History(ctx, in.App, in.Name, in.Before, limit)
	if err != nil {
		return nil, err
	}
	out := adminapi.History{Versions: []adminapi.Past{}}
	for _, v := range versions {
		out.Versions = append(out.Versions, adminapi.Past{
			Revision: v.Revision, At: v.At, Who: v.Who, Why: v.Why, Action: v.Action, Forced: v.Forced, Policy: policyOf(v.Policy),
		})
	}
	return &answer[adminapi.History]{Body: out}, nil
}

func (s *server) rollback(ctx context.Context, in *struct {
	OfPolicy
	Condition
	Writing
	RawBody []byte `contentType:"application/json" doc:"Rollback"`
},
) (*written, error) {
	expect, err := in.expect()
	if err != nil {
		return nil, err
	}
	var body adminapi.Rollback
	if err := strictly(in.RawBody, &body); err != nil || body.Revision < 1 {
		return nil, refusal(http.StatusUnprocessableEntity, `found no revision to go back to; send {"revision": 9} with one of the history`)
	}
	p, err := s.Record.Version(ctx, in.App, in.Name, body.Revision)
	if err != nil {
		return nil, err
	}
	why := in.Why
	if why == "" {
		why = fmt.Sprintf("back to revision %d", body.Revision)
	}
	in.Why = why
	return s.change(ctx, record.Change{
		App: in.App, Action: "rollback", Back: true, // to the epoch of that version as well: somebody asked for it
		Edits: []record.Edit{{Name: in.Name, Policy: p, Expect: expect}},
	}, in.Writing)
}

func (s *server) apply(ctx context.Context, in *struct {
	OfApp
	Condition
	Writing
	Dry     bool   `query:"dry" doc:"Answer the differences and write nothing"`
	Prune   bool   `query:"prune" doc:"Delete the policies that the document does not have"`
	RawBody []byte `contentType:"application/json" doc:"Document"`
},
) (*written, error) {
	expect, err := in.expect()
	if err != nil {
		return nil, err
	}
	if expect.Absent {
		return nil, refusal(http.StatusBadRequest, `found "If-None-Match"; send "If-Match" with the revision of the app, or with *`)
	}
	document, err := policies.Decode(in.RawBody)
	if err != nil {
		return nil, &record.InvalidError{Err: err}
	}
	if document.App != "" && document.App != in.App {
		return nil, refusal(http.StatusUnprocessableEntity,
			fmt.Sprintf("the document is of app %q and was sent to app %q; mend one of the two", document.App, in.App))
	}
	c := record.Change{App: in.App, Action: "apply", Revision: expect.Revision, Dry: in.Dry}
	for _, name := range slices.Sorted(maps.Keys(document.Policies)) {
		p := document.Policies[name]
		c.Edits = append(c.Edits, record.Edit{Name: name, Policy: &p})
	}
	if in.Prune {
		owned, err := s.Record.Owned(ctx, in.App)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(owned)) {
			if _, kept := document.Policies[name]; !kept {
				c.Edits = append(c.Edits, record.Edit{Name: name})
			}
		}
	}
	return s.change(ctx, c, in.Writing)
}

// maxLeap bounds how far processes can raise a generation: somebody has to adopt an app a thousand times for that, and
// after the last number that there is nobody could adopt it any more.
const maxLeap = 1000

func (s *server) adopt(ctx context.Context, in *struct {
	OfApp
	Writing
},
) (*written, error) {
	head, found, err := s.Record.Head(ctx, in.App)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &record.NotFoundError{App: in.App}
	}
	// Later than anything that anybody has seen, so that the processes take it as well.
	known := max(head.Version.Generation, s.Publisher.State(in.App).Version.Generation)
	processes, _, err := s.look(ctx, in.App)
	if err != nil {
		return nil, err
	}
	generation := known
	for _, p := range processes {
		if p.Version.Generation > known+maxLeap { // anybody can announce the last number that there is
			s.Log.Warn("weir-admin: a process announces a generation that no record has given, and is left out",
				"app", in.App, "process", cmp.Or(p.Name, p.ID), "version", p.Version.String())
			continue
		}
		generation = max(generation, p.Version.Generation)
	}
	return s.change(ctx, record.Change{App: in.App, Action: "adopt", Generation: generation}, in.Writing)
}
