package api

import (
	"context"
	"net/url"
	"strconv"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/internal/adminapi"
)

// write returns what a request says of how it writes. current returns the revision that holds.
func (w Writing) write(ctx context.Context, c Condition, current func(context.Context) (int64, error)) (manage.Write, error) {
	out, err := c.expect(ctx, current)
	out.Reason, out.Force, out.Emergency = w.Reason, w.Force, w.Emergency
	return out, err
}

// revisionOfPolicy returns a function for Condition.expect.
func (s *server) revisionOfPolicy(of OfPolicy) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		held, err := s.Policy(ctx, who(ctx), of.App, of.Name)
		if err != nil {
			return 0, err
		}
		return held.Revision, nil
	}
}

// document is the body of apply: see policies.Schema.
type document struct {
	Format int    `json:"format,omitempty"`
	App    string `json:"app"`
	// Generation and Revision are the version of one that is published.
	Generation int64                      `json:"generation,omitempty"`
	Revision   int64                      `json:"revision,omitempty"`
	Policies   map[string]adminapi.Policy `json:"policies"`
}

func (s *server) publishedDocument(ctx context.Context, in *struct {
	OfApp
	Owned bool `query:"owned" doc:"Only the policies that belong to the app, with the further apps of each: as apply takes them"`
},
) (*encoded, error) {
	data, revision, err := s.Document(ctx, who(ctx), in.App, in.Owned)
	if err != nil {
		return nil, err
	}
	return &encoded{ContentType: "application/json", ETag: adminapi.ETag(revision), Body: data}, nil
}

func (s *server) policy(ctx context.Context, in *OfPolicy) (*answer[manage.Held], error) {
	out, err := s.Policy(ctx, who(ctx), in.App, in.Name)
	if err != nil {
		return nil, err
	}
	return tagged(out, out.Revision, nil)
}

func (s *server) putPolicy(ctx context.Context, in *struct {
	OfPolicy
	Condition
	Writing
	RawBody []byte `contentType:"application/json"`
},
) (*written, error) {
	p, err := manage.DecodePolicy(in.RawBody, in.Name)
	if err != nil {
		return nil, err
	}
	w, err := in.write(ctx, in.Condition, s.revisionOfPolicy(in.OfPolicy))
	if err != nil {
		return nil, err
	}
	return wrote(s.PutPolicy(ctx, who(ctx), in.App, in.Name, p, w))
}

func (s *server) deletePolicy(ctx context.Context, in *struct {
	OfPolicy
	Condition
	Writing
},
) (*written, error) {
	w, err := in.write(ctx, in.Condition, s.revisionOfPolicy(in.OfPolicy))
	if err != nil {
		return nil, err
	}
	return wrote(s.DeletePolicy(ctx, who(ctx), in.App, in.Name, w))
}

func (s *server) history(ctx context.Context, in *struct {
	OfPolicy
	Paged
},
) (*answer[adminapi.History], error) {
	after, err := in.after()
	if err != nil {
		return nil, err
	}
	out, err := s.History(ctx, who(ctx), in.App, in.Name, after, in.Limit)
	n, last := 0, int64(0)
	if err == nil && len(out.Versions) > 0 {
		n, last = len(out.Versions), out.Versions[len(out.Versions)-1].Revision
	}
	path := adminapi.Path(adminapi.PathHistory, in.App, in.Name)
	return listed(out, err, in.Paged, n, strconv.FormatInt(last, 10), path, url.Values{})
}

func (s *server) preview(ctx context.Context, in *struct {
	OfPolicy
	Body manage.AskPreview
},
) (*answer[manage.Preview], error) {
	return plain(s.Preview(ctx, who(ctx), in.App, in.Name, in.Body))
}

func (s *server) rollback(ctx context.Context, in *struct {
	OfPolicy
	Condition
	Writing
	Body adminapi.Rollback
},
) (*written, error) {
	w, err := in.write(ctx, in.Condition, s.revisionOfPolicy(in.OfPolicy))
	if err != nil {
		return nil, err
	}
	return wrote(s.Rollback(ctx, who(ctx), in.App, in.Name, in.Body.To, w))
}

func (s *server) takeOver(ctx context.Context, in *struct {
	OfPolicy
	Writing
},
) (*written, error) {
	w := manage.Write{Create: true, Reason: in.Reason, Force: in.Force, Emergency: in.Emergency}
	return wrote(s.TakeOver(ctx, who(ctx), in.App, in.Name, w))
}

func (s *server) putTemporary(ctx context.Context, in *struct {
	OfPolicy
	Condition
	Writing
	Body manage.Temporary
},
) (*written, error) {
	w, err := in.write(ctx, in.Condition, s.revisionOfPolicy(in.OfPolicy))
	if err != nil {
		return nil, err
	}
	return wrote(s.SetTemporary(ctx, who(ctx), in.App, in.Name, in.Body, w))
}

func (s *server) endTemporary(ctx context.Context, in *struct {
	OfPolicy
	Condition
	Writing
},
) (*written, error) {
	w, err := in.write(ctx, in.Condition, s.revisionOfPolicy(in.OfPolicy))
	if err != nil {
		return nil, err
	}
	return wrote(s.EndTemporary(ctx, who(ctx), in.App, in.Name, w))
}

func (s *server) check(ctx context.Context, in *struct {
	RawBody []byte `contentType:"application/json"`
},
) (*answer[manage.Checked], error) {
	p, err := manage.DecodePolicy(in.RawBody, "policy")
	if err != nil {
		if found := manage.Problem(err); len(found.Errors) > 0 {
			return plain(&manage.Checked{Mistakes: found.Errors}, nil)
		}
		return nil, err
	}
	return plain(s.Check(ctx, who(ctx), p))
}

func (s *server) presets(ctx context.Context, _ *struct{}) (*answer[manage.Presets], error) {
	return plain(s.Presets(ctx, who(ctx)))
}
