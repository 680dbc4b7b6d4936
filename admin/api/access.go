package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/weir-go/weir/admin/manage"
)

func (s *server) me(ctx context.Context, _ *struct{}) (*answer[manage.Me], error) {
	return plain(s.Me(ctx, who(ctx)))
}

func (s *server) grants(ctx context.Context, in *OfApp) (*answer[manage.Grants], error) {
	return tagged(s.Grants(ctx, who(ctx), in.App))
}

func (s *server) putGrants(ctx context.Context, in *struct {
	OfApp
	Condition
	Reasoned
	Body manage.Grants
},
) (*answer[manage.Grants], error) {
	w, err := Writing{Reasoned: in.Reasoned}.write(ctx, in.Condition, func(ctx context.Context) (int64, error) {
		_, revision, err := s.Grants(ctx, who(ctx), in.App)
		return revision, err
	})
	if err != nil {
		return nil, err
	}
	out, revision, err := s.PutGrants(ctx, who(ctx), in.App, in.Body.Grants, w)
	if err == nil && out.Proposal != "" {
		return &answer[manage.Grants]{Status: http.StatusAccepted, Body: *out}, nil
	}
	return tagged(out, revision, err)
}

func (s *server) tokens(ctx context.Context, in *Paged) (*answer[manage.Tokens], error) {
	after, err := in.after()
	if err != nil {
		return nil, err
	}
	out, err := s.Tokens(ctx, who(ctx), after, in.Limit)
	n, last := 0, int64(0)
	if err == nil && len(out.Tokens) > 0 {
		n, last = len(out.Tokens), out.Tokens[len(out.Tokens)-1].ID
	}
	return listed(out, err, *in, n, strconv.FormatInt(last, 10), PathTokens, url.Values{})
}

func (s *server) makeToken(ctx context.Context, in *struct {
	Reasoned
	Body manage.NewToken
},
) (*answer[manage.MadeToken], error) {
	return plain(s.MakeToken(ctx, who(ctx), in.Body, in.Reason))
}

func (s *server) deleteToken(ctx context.Context, in *struct {
	ID int64 `path:"id" minimum:"1" doc:"Id of a token"`
	Reasoned
},
) (*nothing, error) {
	return done(s.DeleteToken(ctx, who(ctx), in.ID, in.Reason))
}

func (s *server) people(ctx context.Context, in *Paged) (*answer[manage.People], error) {
	out, err := s.People(ctx, who(ctx), in.After, in.Limit)
	n, last := 0, ""
	if err == nil && len(out.People) > 0 {
		n, last = len(out.People), out.People[len(out.People)-1].ID
	}
	return listed(out, err, *in, n, last, PathPeople, url.Values{})
}

// OfPerson names the person of a path.
type OfPerson struct {
	Person string `path:"person" maxLength:"64" doc:"Id of a person"`
	Reasoned
}

func (s *server) bar(ctx context.Context, in *OfPerson) (*nothing, error) {
	return done(s.Bar(ctx, who(ctx), in.Person, true, in.Reason))
}

func (s *server) unbar(ctx context.Context, in *OfPerson) (*nothing, error) {
	return done(s.Bar(ctx, who(ctx), in.Person, false, in.Reason))
}

func (s *server) endSessions(ctx context.Context, in *OfPerson) (*nothing, error) {
	return done(s.EndSessions(ctx, who(ctx), in.Person, in.Reason))
}
