package manage_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// A refusal names somebody who can give the right: an owner of the app, or nobody where only admins have it.
func TestRefusalsNameWhoCanHelp(t *testing.T) {
	a, ctx := start(t, sqltest.New(t)), t.Context()
	root, anna := a.person("root", rights.Admin), a.person("anna", rights.Viewer, "pay")
	_, err := a.PutApp(ctx, root, "pay", adminapi.Settings{}, create)
	require.NoError(t, err)
	_, err = a.PutPolicy(ctx, anna, "pay", "api", text("100/1m"), create)
	require.EqualError(t, err, `you may see app "pay", and may not "write" there; an owner of it can give you the right`)
	_, err = a.DeleteApp(ctx, anna, "pay", anyway)
	require.EqualError(t, err, `only admins may "delete-app"`)
	_, err = a.DeleteApp(ctx, anna, "shop", anyway)
	require.EqualError(t, err, `there is no app "shop" that you may see; an admin can add it, or give you a right on it`)
	_, err = a.DeleteApp(ctx, root, "shop", anyway)
	require.EqualError(t, err, `there is no app "shop" that you may see; an admin can add it, or give you a right on it`)
}
