package counts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// App is an app as far as it matters who counts where.
type App struct {
	Name string
	// Prefixes are those under which its services count, by the settings that an admin has given it. Without any, what its
	// processes announce is believed as far as nobody else claims it.
	Prefixes []string
	Rules    []Rule
	// Unread reports whether it is not known what its processes announce: they may count anywhere.
	Unread bool
}

// Bind returns the rules of app, with those marked into whose counts nobody may look for the sake of app: announcements
// are anybody's texts, and one that names the prefix of another app's counts must not open them. others are all other apps.
func (s *Stores) Bind(app App, others []App) []Rule {
	type place struct{ prefix, policy string }
	claimed, bound := map[place]bool{}, map[place][]string{}
	taken, unread := map[string]bool{}, false
	mayShare := map[string][]string{} // by prefix
	for _, other := range others {
		for _, prefix := range other.Prefixes {
			taken[prefix] = true
			if other.Unread {
				mayShare[prefix] = append(mayShare[prefix], other.Name)
			}
		}
		unread = unread || other.Unread && len(other.Prefixes) == 0
		for i := range other.Rules {
			r := &other.Rules[i]
			at := place{cmp.Or(r.Prefix, s.o.Prefix), r.Policy}
			switch {
			case r.Process:
			case len(other.Prefixes) == 0:
				claimed[at] = true
			case slices.Contains(other.Prefixes, at.prefix) && !slices.Contains(bound[at], other.Name):
				bound[at] = append(bound[at], other.Name)
			}
		}
	}
	rules := slices.Clone(app.Rules)
	for i := range rules {
		r := &rules[i]
		at := place{cmp.Or(r.Prefix, s.o.Prefix), r.Policy}
		switch {
		case r.Process:
		case len(app.Prefixes) == 0 && (claimed[at] || taken[at.prefix]):
			r.Barred = fmt.Sprintf("the counts under the prefix %q are shared with other apps; an admin can say in the settings of the app "+
				"that it counts there", at.prefix)
		case len(app.Prefixes) == 0 && unread:
			r.Barred = "it is not known which apps count there, because what their processes announce cannot be read; try again, " +
				"or let an admin say in the settings of the app where it counts"
		case len(app.Prefixes) == 0:
		case !slices.Contains(app.Prefixes, at.prefix):
			r.Barred = fmt.Sprintf("its processes say that they count under the prefix %q, and by the settings of the app it counts under %s; "+
				"an admin can change them", at.prefix, strings.Join(app.Prefixes, ", "))
		default:
			r.With = append(slices.Clone(bound[at]), mayShare[at.prefix]...)
			slices.Sort(r.With)
			r.With = slices.Compact(r.With)
		}
	}
	return rules
}
