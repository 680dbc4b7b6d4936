package page

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/internal/adminapi"
)

// keyBody is the screen of a key: why was this customer refused? A key may be a person, so it stands in no address, and
// each look is in the audit: the screen does not ask again by itself.
type keyBody struct {
	App, Key string
	Level    level
	Verdict  string
	Looks    []keyLook
	// Further are those for which there is no room, and Left out the number of those that are not even listed.
	Further  []keyLook
	LeftOut  int
	Reasons  []string
	Ends     []end
	MayReset bool
	MaySet   bool
	Owner    bool
	Done     string // what was just done
	Still    string // the policy of which numbers were written, if it refuses the key all the same
	Problem  string // why it was not
}

// keyLook has the counts of the key by one policy.
type keyLook struct {
	manage.Look
	Level     level
	Word      string
	Part      float64       // that is left, from 0 to 1
	Free      time.Duration // when a request is admitted again
	Known     bool
	Remaining int64
	Limit     int64
	Asked     *askedNumbers // what somebody has typed, nil if nobody has
}

// askedNumbers are those that somebody has typed for a key in a policy.
type askedNumbers struct {
	Policy, Text, End string
	Ends              []end
	// Lines has the difference that they make, nil before it was asked for.
	Lines []line
}

// lookAt shows the key of a form.
func (s *server) lookAt(v *visit) error {
	return s.showKey(v, v.app, strings.TrimSpace(v.r.PostForm.Get("key")))
}

func (s *server) showKey(v *visit, app, key string) error {
	return s.showKeyAfter(v, app, key, "", "", nil)
}

// showKeyAfter shows a key, what became of a change of it, and the numbers that somebody has typed, which may be nil.
func (s *server) showKeyAfter(v *visit, app, key, done, problem string, asked *askedNumbers) error {
	v.app = app
	looks, err := s.Manager.Look(v.r.Context(), v.who, app, key, "")
	if err != nil {
		return err
	}
	body := &keyBody{
		App: app, Key: looks.Key, Done: done, Problem: problem, Reasons: reasons,
		MayReset: v.may(rights.ActionResetKey), MaySet: v.may(rights.ActionSetKey), Owner: v.may(rights.ActionWrite),
	}
	body.Ends = endsFor(body.Owner)
	refused, unknown := 0, 0
	for _, look := range looks.Looks {
		l := keyLookOf(look)
		if asked != nil && asked.Policy == l.Policy {
			l.Asked = asked
			if asked.Lines != nil {
				asked.Lines = linesOfKey(looks.Key, look, asked, v.endOf())
			}
		}
		body.Level = max(body.Level, l.Level)
		if l.Level == bad {
			if refused++; done != "" && v.r.PostForm.Has("text") && l.Policy == v.r.PostForm.Get("policy") {
				body.Still = l.Policy
			}
		}
		if !l.Known {
			unknown++
		}
		body.Looks = append(body.Looks, l)
	}
	chosen := v.r.PostForm.Get("policy") // somebody wants to see it, or has just changed it
	slices.SortStableFunc(body.Looks, func(a, b keyLook) int {
		return cmp.Or(boolIndex(b.Policy == chosen)-boolIndex(a.Policy == chosen), cmp.Compare(b.Level, a.Level), cmp.Compare(a.Part, b.Part))
	})
	body.Looks, body.Further, body.LeftOut = cutLooks(body.Looks)
	switch {
	case len(body.Looks) == 0:
		body.Level, body.Verdict = note, "No policy of "+app+" counts keys of this form"
	case refused > 0:
		body.Verdict = "Refused by " + count(refused, "policy", "policies")
	case unknown == len(looks.Looks):
		body.Level, body.Verdict = warn, "It is not known what is counted"
	case unknown > 0:
		body.Verdict = "Admitted as far as is known: " + count(unknown, "policy", "policies") + " could not be read"
	default:
		body.Verdict = "The next request is admitted"
	}
	return s.show(v, http.StatusOK, "key", frame{Title: "A key of " + app, Section: "home", Search: looks.Key, Body: body})
}

// Bounds of the screen of a key.
const (
	maxLooks   = 15  // policies with all there is to say
	maxFurther = 100 // policies in a list
)

// cutLooks returns the looks that are shown in full, those that are listed, and the number of the others.
func cutLooks(all []keyLook) (full, listed []keyLook, more int) {
	full, listed = all[:min(len(all), maxLooks)], all[min(len(all), maxLooks):]
	more = max(0, len(listed)-maxFurther)
	return full, listed[:len(listed)-more], more
}

func keyLookOf(look manage.Look) keyLook {
	l := keyLook{Look: look}
	e := look.Explanation
	if e == nil {
		l.Level, l.Word = note, "not known"
		return l
	}
	l.Known = true
	r := e.Result
	l.Remaining, l.Limit = look.Left, look.Of
	if look.Of > 0 {
		l.Part = min(1, float64(look.Left)/float64(look.Of))
	}
	switch {
	case !r.Allowed() && e.Shadow:
		l.Level, l.Word, l.Free = note, "on trial: would be refused", r.RetryAfter
	case !r.Allowed() && e.Policy != follow.Unlimited:
		l.Level, l.Word, l.Free = bad, "refused", r.RetryAfter
	case look.Of > 0 && l.Part < 0.1:
		l.Level, l.Word = warn, "nearly used up"
	default:
		l.Level, l.Word = good, "admitted"
	}
	return l
}

// resetKey gives a key its whole limit back.
func (s *server) resetKey(v *visit) error {
	key := strings.TrimSpace(v.r.PostForm.Get("key"))
	policy := v.r.PostForm.Get("policy")
	err := s.Manager.ResetKey(v.r.Context(), v.who, v.app, policy, key, manage.Write{Any: true, Reason: v.reasonOf()})
	return s.afterKey(v, key, policy+" counts this key from the beginning again. A service may go on refusing it for a second; permits are still held.", nil, err)
}

// numbersOfKey shows what numbers of its own would change of a key, and gives it those when that was seen: it blocks the
// key, or takes all that back.
func (s *server) numbersOfKey(v *visit) error {
	ctx, form := v.r.Context(), v.r.PostForm
	key := strings.TrimSpace(form.Get("key"))
	policy, text := form.Get("policy"), strings.TrimSpace(form.Get("text"))
	asked := &askedNumbers{Policy: policy, Text: text, End: form.Get("end"), Ends: endsFor(v.may(rights.ActionWrite))}
	for i := range asked.Ends {
		asked.Ends[i].Chosen = asked.Ends[i].Value == asked.End
	}
	switch form.Get("what") {
	case "edit":
		return s.showKeyAfter(v, v.app, key, "", "", asked)
	case "write":
	default:
		var problem string
		if text != "" {
			checked, err := s.Manager.Check(ctx, v.who, adminapi.Policy{Keys: map[string]string{key: text}})
			switch {
			case err != nil:
				return err
			case len(checked.Mistakes) > 0:
				problem = checked.Mistakes[0].Message
			}
		}
		if problem == "" {
			asked.Lines = []line{}
		}
		return s.showKeyAfter(v, v.app, key, "", problem, asked)
	}
	w := manage.Write{Revision: numberIn(v.r, "revision"), Reason: v.reasonOf()}
	w.Create = w.Revision == 0
	written, err := s.Manager.PutKey(ctx, v.who, v.app, policy, manage.KeyNumbers{Key: key, Text: text, Until: v.endOf()}, w)
	if err != nil {
		return s.afterKey(v, key, "", asked, err)
	}
	if len(written.Differences) == 1 && written.Differences[0].After != nil {
		text = written.Differences[0].After.Keys[key] // what has ended may have had other numbers before it
	}
	done := "This key has the numbers of the others again in " + policy + "."
	switch {
	case written.Proposal != "":
		done = "The change waits for another owner."
	case text != "":
		done = "This key has " + text + " in " + policy + " now."
	}
	return s.afterKey(v, key, done, nil, nil)
}

// linesOfKey returns what numbers change of a key.
func linesOfKey(key string, look manage.Look, asked *askedNumbers, until time.Time) []line {
	say := func(text string, until time.Time) string {
		text = cut(80, key) + ": " + cmp.Or(text, "the numbers of all others")
		if !until.IsZero() {
			text += " until " + stamp(until)
		}
		return text
	}
	var now time.Time
	if look.Temporary != nil {
		now = look.Temporary.Until
	}
	return differenceOf(map[string]string{"": say(look.Numbers, now)}, map[string]string{"": say(asked.Text, until)})
}

// afterKey shows the key again after a change of it, and the numbers that somebody has typed if nothing came of them.
func (s *server) afterKey(v *visit, key, done string, asked *askedNumbers, err error) error {
	if err == nil {
		return s.showKeyAfter(v, v.app, key, done, "", nil)
	}
	if manage.Problem(err).Status == http.StatusPreconditionFailed {
		return s.showKeyAfter(v, v.app, key, "",
			"Somebody has changed the policy meanwhile. Below you see what holds now: look, and do it again.", asked)
	}
	if text, ok := refusedBy(err); ok {
		return s.showKeyAfter(v, v.app, key, "", text, asked)
	}
	return err
}
