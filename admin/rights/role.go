package rights

import "fmt"

// Role is the right of a person in an app. Each role may do all that those before it may.
type Role uint8

// The roles.
const (
	None     Role = iota // sees nothing, not even that there is such an app
	Viewer               // sees policies, their history, who uses them and how much
	Operator             // helps one caller, and puts a policy on trial or on other numbers for a time
	Owner                // answers for the app: texts, tiers, further apps, approvals, grants, tokens
	Admin                // adds and deletes apps, and writes what holds for all of them
)

var roles = [...]string{"none", "viewer", "operator", "owner", "admin"}

// String returns the word for a role: "viewer", "operator", "owner", "admin" or "none".
func (r Role) String() string {
	if int(r) < len(roles) {
		return roles[r]
	}
	return fmt.Sprintf("Role(%d)", uint8(r))
}

// ParseRole returns the role that a word names. "none" is no role that could be given to anybody.
func ParseRole(word string) (Role, error) {
	for r := Viewer; r <= Admin; r++ {
		if roles[r] == word {
			return r, nil
		}
	}
	return None, fmt.Errorf(`found the role %.40q; give "viewer", "operator", "owner" or "admin"`, word)
}

// MarshalText returns the word for a role.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText returns.
func (r *Role) UnmarshalText(text []byte) error {
	if string(text) == roles[None] {
		*r = None
		return nil
	}
	parsed, err := ParseRole(string(text))
	if err == nil {
		*r = parsed
	}
	return err
}
