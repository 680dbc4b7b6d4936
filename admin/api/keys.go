package api

import (
	"context"
	"time"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/internal/adminapi"
)

func (s *server) usage(ctx context.Context, in *struct {
	OfPolicy
	Minutes int `query:"minutes" default:"60" minimum:"1" maximum:"1440" doc:"Minutes to look back"`
},
) (*answer[manage.Usage], error) {
	return plain(s.Usage(ctx, who(ctx), in.App, in.Name, time.Now().Add(-time.Duration(in.Minutes)*time.Minute)))
}

func (s *server) keys(ctx context.Context, in *OfPolicy) (*answer[manage.Keys], error) {
	return tagged(s.Keys(ctx, who(ctx), in.App, in.Name))
}

func (s *server) putKey(ctx context.Context, in *struct {
	OfPolicy
	Condition
	Writing
	Body manage.KeyNumbers
},
) (*written, error) {
	w, err := in.write(ctx, in.Condition, s.revisionOfPolicy(in.OfPolicy))
	if err != nil {
		return nil, err
	}
	return wrote(s.PutKey(ctx, who(ctx), in.App, in.Name, in.Body, w))
}

func (s *server) resetKey(ctx context.Context, in *struct {
	OfPolicy
	Reasoned
	Body manage.OfKey
},
) (*nothing, error) {
	return done(s.ResetKey(ctx, who(ctx), in.App, in.Name, in.Body.Key, manage.Write{Any: true, Reason: in.Reason}))
}

func (s *server) lookAtKey(ctx context.Context, in *struct {
	OfApp
	Reasoned
	Body manage.OfKey
},
) (*answer[manage.Looks], error) {
	return plain(s.Look(ctx, who(ctx), in.App, in.Body.Key, in.Reason))
}

func (s *server) top(ctx context.Context, in *struct {
	Policy  string `path:"policy" doc:"Name of a policy"`
	Prefix  string `query:"prefix" default:"weir" doc:"Prefix of the store that counts"`
	Minutes int    `query:"minutes" default:"10" minimum:"0" maximum:"119" doc:"Minutes to look back"`
	Limit   int    `query:"limit" default:"20" minimum:"1" maximum:"1000" doc:"Most callers to return"`
},
) (*answer[adminapi.Top], error) {
	return plain(s.Top(ctx, who(ctx), in.Policy, in.Prefix, in.Minutes, in.Limit))
}
