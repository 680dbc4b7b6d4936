package rights

// AllApps stands for every app, where the name of an app is expected.
const AllApps = "*"

// Person is somebody, or a program with a token, with the rights of this moment. A nil *Person is nobody.
type Person struct {
	ID   string // does not change when the name does
	Name string // as it is shown
	// Roles are those in the apps that they are keyed by. The role of AllApps is that in each app, also in one that
	// does not exist yet.
	Roles map[string]Role
	Admin bool
	Token int64 // the number of the token that was used; 0 is a session
}

// Role returns the role of a person in an app. What holds for all apps, the app AllApps, can be seen by anybody who
// sees any app, since it stands in the document of each; only admins may do more there.
func (p *Person) Role(app string) Role {
	switch {
	case p == nil:
		return None
	case p.Admin:
		return Admin
	case app == AllApps:
		for _, role := range p.Roles {
			if role > None {
				return Viewer
			}
		}
		return None
	}
	return min(max(p.Roles[app], p.Roles[AllApps]), Owner) // only Admin makes an admin
}

// Verdict is the answer to whether a person may do something.
type Verdict uint8

// The verdicts. The zero Verdict refuses.
const (
	Hidden    Verdict = iota // no, nor may they know that there is such an app: the answer is that of one that is not there
	Forbidden                // no, of what they may see
	Allowed
)

// String returns "hidden", "forbidden" or "allowed".
func (v Verdict) String() string {
	switch v {
	case Hidden:
		return "hidden"
	case Forbidden:
		return "forbidden"
	case Allowed:
		return "allowed"
	}
	return "unknown"
}

// Decide reports whether a person may do something to all the apps it concerns: a policy that several apps use needs
// the right in each of them. What names no app is for admins. An action that is not in the table is for nobody.
func Decide(p *Person, a Action, apps ...string) Verdict {
	if p == nil {
		return Hidden
	}
	needed, known := least[a]
	verdict := Allowed
	if !known || needed == Admin && !p.Admin || len(apps) == 0 && !p.Admin {
		verdict = Forbidden
	}
	for _, app := range apps {
		switch role := p.Role(app); {
		case role < Viewer:
			return Hidden
		case role < needed:
			verdict = Forbidden
		}
	}
	return verdict
}
