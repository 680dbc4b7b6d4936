package page

import (
	"context"
	"time"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// Manager does what the pages show and change. It decides who may, and is a [*manage.Manager] but in tests.
type Manager interface {
	Apps(ctx context.Context, who *rights.Person, after string, limit int) (*manage.Apps, error)
	Search(ctx context.Context, who *rights.Person, text string) (*manage.Found, error)

	App(ctx context.Context, who *rights.Person, app string) (*manage.AppView, error)
	Settings(ctx context.Context, who *rights.Person, app string) (adminapi.Settings, error)
	Services(ctx context.Context, who *rights.Person, app string) (*adminapi.Services, error)

	Policy(ctx context.Context, who *rights.Person, app, name string) (*manage.Held, error)
	History(ctx context.Context, who *rights.Person, app, name string, before int64, limit int) (*adminapi.History, error)
	Usage(ctx context.Context, who *rights.Person, app, name string, since time.Time) (*manage.Usage, error)

	Check(ctx context.Context, who *rights.Person, p adminapi.Policy) (*manage.Checked, error)
	Presets(ctx context.Context, who *rights.Person) (*manage.Presets, error)
	Preview(ctx context.Context, who *rights.Person, app, name string, ask manage.AskPreview) (*manage.Preview, error)

	PutPolicy(
		ctx context.Context, who *rights.Person, app, name string, p adminapi.Policy, w manage.Write,
	) (*adminapi.Written, error)
	DeletePolicy(ctx context.Context, who *rights.Person, app, name string, w manage.Write) (*adminapi.Written, error)
	Rollback(ctx context.Context, who *rights.Person, app, name string, to int64, w manage.Write) (*adminapi.Written, error)
	RollbackApp(
		ctx context.Context, who *rights.Person, app string, to int64, dry bool, w manage.Write,
	) (*adminapi.Written, error)
	TakeOver(ctx context.Context, who *rights.Person, app, name string, w manage.Write) (*adminapi.Written, error)
	CodeOf(ctx context.Context, who *rights.Person, app, name string) (*adminapi.Policy, error)
	Trial(
		ctx context.Context, who *rights.Person, app, name string, on bool, until time.Time, w manage.Write,
	) (*adminapi.Written, error)

	TrialOf(ctx context.Context, who *rights.Person, app, name string, on bool) (string, error)
	EndTemporary(ctx context.Context, who *rights.Person, app, name string, w manage.Write) (*adminapi.Written, error)

	Look(ctx context.Context, who *rights.Person, app, key, reason string) (*manage.Looks, error)
	Keys(ctx context.Context, who *rights.Person, app, name string) (*manage.Keys, int64, error)
	PutKey(
		ctx context.Context, who *rights.Person, app, name string, numbers manage.KeyNumbers, w manage.Write,
	) (*adminapi.Written, error)
	ResetKey(ctx context.Context, who *rights.Person, app, name, key string, w manage.Write) error

	Proposals(ctx context.Context, who *rights.Person, which manage.WhichProposals) (*manage.Proposals, error)
	Approve(ctx context.Context, who *rights.Person, id, reason string) (*adminapi.Written, error)
	Reject(ctx context.Context, who *rights.Person, id, reason string) error
	Audit(ctx context.Context, who *rights.Person, which manage.WhichAudit) (*manage.Audit, error)
	Seen(ctx context.Context, who *rights.Person, seq int64, reason string) error
	Imports(ctx context.Context, who *rights.Person) (*manage.Imports, error)

	PutApp(ctx context.Context, who *rights.Person, app string, s adminapi.Settings, w manage.Write) (*adminapi.Written, error)
	DeleteApp(ctx context.Context, who *rights.Person, app string, w manage.Write) (*adminapi.Written, error)
	Grants(ctx context.Context, who *rights.Person, app string) (*manage.Grants, int64, error)
	PutGrants(
		ctx context.Context, who *rights.Person, app string, all []manage.Grant, w manage.Write,
	) (*manage.Grants, int64, error)
	People(ctx context.Context, who *rights.Person, after string, limit int) (*manage.People, error)
	Bar(ctx context.Context, who *rights.Person, id string, barred bool, reason string) error
	EndSessions(ctx context.Context, who *rights.Person, id, reason string) error
	Tokens(ctx context.Context, who *rights.Person, after int64, limit int) (*manage.Tokens, error)
	MakeToken(ctx context.Context, who *rights.Person, n manage.NewToken, reason string) (*manage.MadeToken, error)
	DeleteToken(ctx context.Context, who *rights.Person, id int64, reason string) error
}
