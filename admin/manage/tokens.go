package manage

import (
	"context"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// Tokens returns the tokens that a person has made; for an admin, all of them.
func (*Manager) Tokens(context.Context, *rights.Person, int64, int) (*adminapi.Tokens, error) {
	return nil, ErrNotYet
}

// MakeToken makes a token of at most the maker's rights.
func (*Manager) MakeToken(context.Context, *rights.Person, adminapi.NewToken, string) (*adminapi.MadeToken, error) {
	return nil, ErrNotYet
}

// DeleteToken ends a token.
func (*Manager) DeleteToken(context.Context, *rights.Person, int64, string) error {
	return ErrNotYet
}
