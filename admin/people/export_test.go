package people

import (
	"time"

	"github.com/weir-go/weir/admin/rights"
)

// TokenRights returns the rights of somebody, and those of a token that they have made.
func TokenRights(roles map[string]rights.Role, admin bool, apps []string, role rights.Role) (maker, made *rights.Person) {
	one := &person{id: "p", seen: time.Now()}
	for app, role := range roles {
		one.own = append(one.own, given{app: app, role: role})
	}
	if admin {
		one.own = append(one.own, given{app: rights.AllApps, role: rights.Admin})
	}
	t := &token{id: 1, maker: "p", apps: apps, role: role}
	return one.rights(time.Now(), true), t.rights(one, time.Now())
}

// ForgetProvider lets the provider be asked at once, although it has just failed.
func (p *People) ForgetProvider() {
	p.provider.mu.Lock()
	defer p.provider.mu.Unlock()
	p.provider.asked, p.provider.failed = time.Time{}, nil
}

// Outdate lets what is known be read again at once.
func (p *People) Outdate() { p.changes.Add(1) }

// Drowse lets this process believe that nobody has used a session for a time.
func (p *People) Drowse(since time.Duration) {
	for _, one := range p.known.Load().sessions {
		one.seen.Store(time.Now().Add(-since).UnixMicro())
	}
}
