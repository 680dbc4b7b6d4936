package api

import (
	"context"
	"net/url"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

func (s *server) apps(ctx context.Context, in *Paged) (*answer[manage.Apps], error) {
	out, err := s.Apps(ctx, who(ctx), in.After, in.Limit)
	n, last := 0, ""
	if err == nil && len(out.Apps) > 0 {
		n, last = len(out.Apps), out.Apps[len(out.Apps)-1].App.App
	}
	return listed(out, err, *in, n, last, adminapi.PathApps, url.Values{})
}

func (s *server) app(ctx context.Context, in *OfApp) (*answer[manage.AppView], error) {
	out, err := s.App(ctx, who(ctx), in.App)
	if err != nil {
		return nil, err
	}
	return tagged(out, out.SettingsRevision, nil)
}

// revisionOfApp returns a function for Condition.expect.
func (s *server) revisionOfApp(app string) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		_, revision, err := s.Document(ctx, who(ctx), app, true)
		return revision, err
	}
}

// revisionOfSettings is revisionOfApp for the settings.
func (s *server) revisionOfSettings(app string) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		out, err := s.App(ctx, who(ctx), app)
		if err != nil {
			return 0, err
		}
		return out.SettingsRevision, nil
	}
}

func (s *server) putApp(ctx context.Context, in *struct {
	OfApp
	Condition
	Writing
	Body adminapi.Settings
},
) (*written, error) {
	w, err := in.write(ctx, in.Condition, s.revisionOfSettings(in.App))
	if err != nil {
		return nil, err
	}
	return wrote(s.PutApp(ctx, who(ctx), in.App, in.Body, w))
}

func (s *server) deleteApp(ctx context.Context, in *struct {
	OfApp
	Condition
	Writing
},
) (*written, error) {
	w, err := in.write(ctx, in.Condition, s.revisionOfSettings(in.App))
	if err != nil {
		return nil, err
	}
	return wrote(s.DeleteApp(ctx, who(ctx), in.App, w))
}

func (s *server) adopt(ctx context.Context, in *struct {
	OfApp
	Reasoned
},
) (*written, error) {
	return wrote(s.Adopt(ctx, who(ctx), in.App, manage.Write{Any: true, Reason: in.Reason}))
}

func (s *server) rollbackApp(ctx context.Context, in *struct {
	OfApp
	Condition
	Writing
	Dry  bool `query:"dry_run" doc:"Answer the differences and write nothing"`
	Body adminapi.Rollback
},
) (*written, error) {
	w, err := in.write(ctx, in.Condition, s.revisionOfApp(in.App))
	if err != nil {
		return nil, err
	}
	return wrote(s.RollbackApp(ctx, who(ctx), in.App, in.Body.To, in.Dry, w))
}

func (s *server) services(ctx context.Context, in *OfApp) (*answer[adminapi.Services], error) {
	return plain(s.Services(ctx, who(ctx), in.App))
}

func (s *server) search(ctx context.Context, in *struct{ Body manage.Search }) (*answer[manage.Found], error) {
	return plain(s.Search(ctx, who(ctx), in.Body.Text))
}

func (*server) schema(context.Context, *struct{}) (*encoded, error) {
	return &encoded{ContentType: "application/schema+json", Body: policies.Schema()}, nil
}
