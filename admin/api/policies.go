package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

func (s *server) apps(ctx context.Context, _ *struct{}) (*answer[adminapi.Apps], error) {
	heads, err := s.Record.Heads(ctx)
	if err != nil {
		return nil, err
	}
	out := adminapi.Apps{Apps: make([]adminapi.App, len(heads))}
	for i, h := range heads {
		state := s.Publisher.State(h.App)
		out.Apps[i] = adminapi.App{
			App: h.App, Generation: h.Version.Generation, Revision: h.Version.Revision,
			Published: state.Version == h.Version && state.Alarm == "", Alarm: state.Alarm,
		}
	}
	return &answer[adminapi.Apps]{Body: out}, nil
}

func (*server) schema(context.Context, *struct{}) (*encoded, error) {
	return &encoded{ContentType: "application/schema+json", Body: policies.Schema()}, nil
}

func (s *server) addApp(ctx context.Context, in *struct {
	OfApp
	Writing
},
) (*written, error) {
	return s.change(ctx, record.Change{App: in.App, Action: "add"}, in.Writing)
}

func (s *server) document(ctx context.Context, in *struct {
	OfApp
	Owned bool `query:"owned" doc:"Only the policies that belong to the app, with the further apps of each: as apply takes them"`
},
) (*encoded, error) {
	if in.Owned {
		return s.owned(ctx, in.App)
	}
	document, bytes, err := s.Record.Document(ctx, in.App)
	if err != nil {
		return nil, err
	}
	return &encoded{ContentType: "application/json", ETag: adminapi.ETag(document.Version.Revision), Body: bytes}, nil
}

// owned answers the policies that belong to an app. Its revision is read first: a change that comes between is refused
// when they are applied again, and not undone.
func (s *server) owned(ctx context.Context, app string) (*encoded, error) {
	head, known, err := s.Record.Head(ctx, app)
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, &record.NotFoundError{App: app}
	}
	owned, err := s.Record.Owned(ctx, app)
	if err != nil {
		return nil, err
	}
	document := policies.Document{App: app, Version: head.Version, Policies: owned}
	bytes, err := document.Encode()
	if err != nil {
		return nil, err
	}
	return &encoded{ContentType: "application/json", ETag: adminapi.ETag(head.Version.Revision), Body: bytes}, nil
}

func (s *server) policy(ctx context.Context, in *struct{ OfPolicy }) (*answer[adminapi.Held], error) {
	p, revision, err := s.Record.Policy(ctx, in.App, in.Name)
	if err != nil {
		return nil, err
	}
	return tagged(revision, adminapi.Held{App: in.App, Name: in.Name, Revision: revision, Policy: adminapi.PolicyOf(p)}), nil
}

func (s *server) putPolicy(ctx context.Context, in *struct {
	OfPolicy
	Condition
	Writing
	RawBody []byte `contentType:"application/json" doc:"Policy"`
},
) (*written, error) {
	expect, err := in.expect()
	if err != nil {
		return nil, err
	}
	p, err := policies.DecodePolicy(in.RawBody, in.Name)
	if err != nil {
		return nil, &record.InvalidError{Name: in.Name, Err: err}
	}
	edits := []record.Edit{{Name: in.Name, Policy: &p, Expect: expect}}
	return s.change(ctx, record.Change{App: in.App, Action: "set", Edits: edits}, in.Writing)
}

func (s *server) deletePolicy(ctx context.Context, in *struct {
	OfPolicy
	Condition
	Writing
},
) (*written, error) {
	expect, err := in.expect()
	if err != nil {
		return nil, err
	}
	edits := []record.Edit{{Name: in.Name, Expect: expect}}
	return s.change(ctx, record.Change{App: in.App, Action: "delete", Edits: edits}, in.Writing)
}

// expect reads the condition, without which the last of two people who change one policy would win unseen.
func (c Condition) expect() (record.Expect, error) {
	switch {
	case c.IfMatch == "" && c.IfNoneMatch == "":
		return record.Expect{}, refusal(http.StatusPreconditionRequired,
			`send "If-Match" with the ETag of the policy that was read, or with * for whatever there is, or "If-None-Match: *" to create it`)
	case c.IfMatch != "" && c.IfNoneMatch != "":
		return record.Expect{}, refusal(http.StatusBadRequest, `found "If-Match" and "If-None-Match"; send one of them`)
	case c.IfNoneMatch == "*":
		return record.Expect{Absent: true}, nil
	case c.IfNoneMatch != "":
		return record.Expect{}, refusal(http.StatusBadRequest, `found another "If-None-Match" than *; send * or "If-Match"`)
	case c.IfMatch == "*":
		return record.Expect{}, nil
	}
	text := strings.TrimPrefix(c.IfMatch, "W/") // a proxy that compresses makes the tag weak
	revision, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
	if err != nil || revision < 1 {
		return record.Expect{}, refusal(http.StatusBadRequest, `found an "If-Match" that is no revision; send the ETag as it was read, such as "17"`)
	}
	return record.Expect{Revision: revision}, nil
}

// change makes a change and waits until it is published, but not for long: it will be.
func (s *server) change(ctx context.Context, c record.Change, w Writing) (*written, error) {
	c.Who, c.Why, c.Force = who(ctx), w.Why, w.Force
	var whole bool
	var err error
	if c.Announced, whole, err = s.announced(ctx, c); err != nil {
		return nil, err
	}
	outcome, err := s.Record.Change(ctx, c)
	if err != nil {
		return nil, err
	}
	out := adminapi.Written{
		App: c.App, Dry: c.Dry, Differences: []adminapi.Difference{},
		Generation: outcome.Head.Version.Generation, Revision: outcome.Head.Version.Revision,
	}
	for _, d := range outcome.Differences {
		out.Differences = append(out.Differences, adminapi.Difference{
			Name: d.Name, Before: policyOf(d.Before), After: policyOf(d.After), Afresh: d.Afresh,
		})
	}
	for _, no := range outcome.CannotUse {
		out.CannotUse = append(out.CannotUse, adminapi.CannotUse(no))
	}
	if whole {
		out.Unused = unused(outcome.Differences, c.Announced)
	}
	if !c.Dry {
		out.Published, out.Alarm = s.published(ctx, outcome)
	}
	tag := out.Revision
	if c.Action != "apply" && len(c.Edits) == 1 {
		tag = outcome.Revision // what the next If-Match of this policy expects
	}
	return tagged(tag, out), nil
}

// published waits until the documents of all apps that a change affects are published, or the one of its app if it
// affects none, but for no longer than a moment, and returns the first alarm.
func (s *server) published(ctx context.Context, outcome *record.Outcome) (all bool, alarm string) {
	s.Publisher.Wake()
	ctx, cancel := context.WithTimeout(ctx, publishing)
	defer cancel()
	documents := outcome.Affected
	if own := outcome.Head; len(documents) == 0 && own.App != policies.AllApps && own.Version.Revision > 0 {
		documents = []record.Head{own}
	}
	all = true
	for _, d := range documents {
		state := s.Publisher.Wait(ctx, d.App, d.Version)
		all = all && state.Alarm == "" && state.Version.Compare(d.Version) >= 0
		if alarm == "" && state.Alarm != "" {
			alarm = fmt.Sprintf("app %q: %s", d.App, state.Alarm)
		}
	}
	return all, alarm
}

func policyOf(p *policies.Policy) *adminapi.Policy {
	if p == nil {
		return nil
	}
	out := adminapi.PolicyOf(*p)
	return &out
}
