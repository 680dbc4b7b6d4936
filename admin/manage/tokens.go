package manage

import (
	"context"
	"time"

	"github.com/weir-go/weir/admin/rights"
)

// Tokens answers PathTokens.
type Tokens struct {
	Tokens []Token `json:"tokens"`
}

// Token is a token without its secret.
type Token struct {
	ID    int64    `json:"id"`
	Name  string   `json:"name"`
	Maker string   `json:"maker"` // the id of the person who has made it
	Apps  []string `json:"apps"`  // "*" is all of them
	Role  string   `json:"role"`
	// Made, Ends and Used are times; Used is that of its last use, to the hour.
	Made time.Time `json:"made"`
	Ends time.Time `json:"ends"`
	Used time.Time `json:"used,omitzero"`
}

// NewToken is the body of PathTokens.
type NewToken struct {
	Name string   `json:"name"`
	Apps []string `json:"apps" maxItems:"100"`
	Role string   `json:"role" enum:"viewer,operator,owner,admin"`
	// Ends is at most a year from now.
	Ends time.Time `json:"ends"`
}

// MadeToken answers PathTokens. The secret is in no other answer.
type MadeToken struct {
	Token
	Secret string `json:"secret"`
}

// Tokens returns the tokens that a person has made; for an admin, all of them.
func (*Manager) Tokens(context.Context, *rights.Person, int64, int) (*Tokens, error) {
	return nil, ErrNotYet
}

// MakeToken makes a token of at most the maker's rights.
func (*Manager) MakeToken(context.Context, *rights.Person, NewToken, string) (*MadeToken, error) {
	return nil, ErrNotYet
}

// DeleteToken ends a token.
func (*Manager) DeleteToken(context.Context, *rights.Person, int64, string) error {
	return ErrNotYet
}
