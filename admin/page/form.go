package page

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/internal/adminapi"
)

// formOf reads the form of a request, which has one of the type that browsers send.
func formOf(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return &adminapi.Problem{
			Status: http.StatusUnsupportedMediaType, Title: "That was no form",
			Detail: "Programs change policies through the API, whose paths begin with /v1.",
		}
	}
	err = r.ParseForm()
	var tooLarge *http.MaxBytesError
	if err == nil || errors.As(err, &tooLarge) {
		return err
	}
	return &adminapi.Problem{Status: http.StatusBadRequest, Title: "The form cannot be read", Detail: err.Error()}
}

// draft is a policy as it is typed: its fields hold the texts of a form, right or wrong.
type draft struct {
	Text, Tiers, Keys, Apps string
	Reason                  string
	Emergency, Force        bool
	// Revision is that of the policy which was edited, 0 of a new one.
	Revision int64
}

// draftOf returns the draft that a policy makes.
func draftOf(p adminapi.Policy, revision int64) draft {
	return draft{
		Text: p.Text, Tiers: linesOf(p.Tiers), Keys: linesOf(p.Keys),
		Apps: strings.Join(slices.Sorted(slices.Values(p.Apps)), ", "), Revision: revision,
	}
}

// typed returns the draft of a form.
func typed(r *http.Request) draft {
	get := func(name string) string {
		return strings.TrimSpace(strings.ReplaceAll(r.PostForm.Get(name), "\r\n", "\n"))
	}
	return draft{
		Text: get("text"), Tiers: get("tiers"), Keys: get("keys"), Apps: get("apps"), Reason: get("reason"),
		Emergency: get("emergency") != "", Force: get("force") != "", Revision: numberIn(r, "revision"),
	}
}

// numberIn returns the number of a field that nobody types, 0 if there is none.
func numberIn(r *http.Request, field string) int64 {
	n, err := strconv.ParseInt(r.PostForm.Get(field), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// tokenIn returns the number of a token that somebody has typed, 0 if the field is empty.
func tokenIn(text string) (int64, error) {
	if text = strings.TrimSpace(text); text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("found %.60q for a token; give its number, which stands under its name in the list of tokens", text)
	}
	return n, nil
}

// policy returns what a draft says, with the mistakes that no policy can have.
func (d draft) policy() (adminapi.Policy, []adminapi.Mistake) {
	p := adminapi.Policy{Text: d.Text}
	var mistakes, more []adminapi.Mistake
	p.Tiers, mistakes = entriesOf("tiers", d.Tiers)
	p.Keys, more = entriesOf("keys", d.Keys)
	for app := range strings.FieldsFuncSeq(d.Apps, func(r rune) bool { return r == ',' || r == '\n' }) {
		if app = strings.TrimSpace(app); app != "" {
			p.Apps = append(p.Apps, app)
		}
	}
	return p, append(mistakes, more...)
}

// linesOf writes the entries of tiers or keys, each on a line: "pro: 5000/1m". A name that could be read otherwise
// stands in quotes, as Go writes them.
func linesOf(entries map[string]string) string {
	lines := make([]string, 0, len(entries))
	for name, text := range entries {
		if plain, _, ok := entryOf(name + ": " + text); !ok || plain != name || strings.ContainsAny(name, "\n\r") {
			name = strconv.Quote(name)
		}
		lines = append(lines, name+": "+text)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// entriesOf reads what linesOf writes.
func entriesOf(field, text string) (map[string]string, []adminapi.Mistake) {
	var entries map[string]string
	var mistakes []adminapi.Mistake
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := entryOf(line)
		wrong := ""
		switch _, twice := entries[name]; {
		case !ok:
			wrong = fmt.Sprintf("found %.60q; write a name, a colon and numbers, such as \"pro: 5000/1m\"", line)
		case twice:
			wrong = fmt.Sprintf("%.60q stands twice; keep one of them", name)
		}
		if wrong != "" {
			mistakes = append(mistakes, adminapi.Mistake{Location: fmt.Sprintf("%s, line %d", field, i+1), Message: wrong})
			continue
		}
		if entries == nil {
			entries = map[string]string{}
		}
		entries[name] = value
	}
	return entries, mistakes
}

// entryOf reads a line. What stands before the last colon is the name, since keys may have colons: "ip=2001:db8::/64".
func entryOf(line string) (name, text string, ok bool) {
	at := strings.LastIndex(line, ":")
	if at < 1 {
		return "", "", false
	}
	name, text = strings.TrimSpace(line[:at]), strings.TrimSpace(line[at+1:])
	if strings.HasPrefix(name, `"`) {
		quoted, err := strconv.Unquote(name)
		if err != nil {
			return "", "", false
		}
		name = quoted
	}
	return name, text, name != "" && text != ""
}
