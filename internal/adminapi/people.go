package adminapi

import "time"

// Me answers PathMe: who asks, and what they may do.
type Me struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Token is the id of the token that was sent, or 0 for a session.
	Token int64 `json:"token,omitempty"`
	Admin bool  `json:"admin,omitempty"`
	// Roles are those of the apps, by name.
	Roles map[string]string `json:"roles"`
}

// Grants answers PathGrants, and is its body.
type Grants struct {
	Grants []Grant `json:"grants" maxItems:"1000"`
}

// Grant is a right of a person or a group on an app.
type Grant struct {
	// Kind is "person" or "group".
	Kind string `json:"kind" enum:"person,group"`
	// Subject is the id of the person, or the name that the identity provider gives the group.
	Subject string `json:"subject"`
	// Name is that of the person. It is not read.
	Name string `json:"name,omitempty"`
	Role string `json:"role" enum:"viewer,operator,owner,admin"`
	// Ends is the end of the right, if it has one.
	Ends time.Time `json:"ends,omitzero"`
}

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
