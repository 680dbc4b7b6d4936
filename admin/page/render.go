package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed templates
var sources embed.FS

// templates are the screens by name, each with the layout and the parts that screens share.
var templates = func() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(template.FuncMap{
		"static":       static,
		"path":         pathTo,
		"pathToPolicy": pathToPolicy,
		"stamp":        stamp,
		"machine":      func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"span":         span,
		"number":       func(n any) (string, error) { return numberOf(n) },
		"count":        func(n int, one, many string) string { return count(n, one, many) },
		"cut":          cut,
		"joined":       joined,
		"lost":         lost,
		"lower":        strings.ToLower,
		"args":         func(values ...any) []any { return values },
		"mark":         mark,
		"window":       window,
		"spark":        spark,
		"bar":          bar,
	}).ParseFS(sources, "templates/layout.html", "templates/parts.html"))
	all := map[string]*template.Template{}
	names, err := fs.Glob(sources, "templates/*.html")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		screen := strings.TrimSuffix(path.Base(name), ".html")
		if screen == "layout" || screen == "parts" {
			continue
		}
		all[screen] = template.Must(template.Must(shared.Clone()).ParseFS(sources, name))
	}
	return all
}()

func numberOf(n any) (string, error) {
	switch n := n.(type) {
	case int:
		return number(n), nil
	case int64:
		return number(n), nil
	case uint64:
		return number(n), nil
	}
	return "", fmt.Errorf("page: %T is no number", n)
}

// frame has the values of the layout, and those of a screen in Body. Templates receive it.
type frame struct {
	Title   string
	Section string // "home", "changes" or "settings": where one is in the menu
	Person  string // "" if nobody has logged in
	Demo    bool
	Now     time.Time
	// Search is the text of the search field.
	Search string
	// Live is the path that answers the screen again. It is "" of screens that do not change by themselves.
	Live  string
	Inner template.HTML
	// Body is that of the screen.
	Body any
}

// moment is a time and how long ago it was.
type moment struct {
	At  time.Time
	Ago string
}

// When is called by templates.
func (f *frame) When(t time.Time) moment { return moment{t, ago(t, f.Now)} }

// Ago is called by templates.
func (f *frame) Ago(t time.Time) string { return ago(t, f.Now) }

// show answers with a screen. Of a live one that has not changed since the browser has asked, the answer is 204.
func (s *server) show(v *visit, status int, screen string, f frame) error {
	f.Now, f.Demo = v.now, s.Demo
	if v.who != nil {
		f.Person = v.who.Name
	}
	t := templates[screen]
	var inner bytes.Buffer
	if err := t.ExecuteTemplate(&inner, "main", &f); err != nil {
		return err
	}
	part := "layout"
	if f.Live != "" {
		sum := sha256.Sum256(inner.Bytes())
		have := base64.RawURLEncoding.EncodeToString(sum[:9])
		if v.fragment() {
			part = "live"
			if v.r.URL.Query().Get("have") == have {
				v.w.WriteHeader(http.StatusNoContent)
				return nil
			}
		}
		join := "?"
		if strings.Contains(f.Live, "?") {
			join = "&"
		}
		f.Live += join + "have=" + have
	}
	f.Inner = template.HTML(inner.String()) //nolint:gosec // a template has made it
	var page bytes.Buffer
	if err := t.ExecuteTemplate(&page, part, &f); err != nil {
		return err
	}
	return s.send(v, status, &page)
}

// part answers with a part of a screen.
func (s *server) part(v *visit, screen, part string, data any) error {
	var b bytes.Buffer
	if err := templates[screen].ExecuteTemplate(&b, part, data); err != nil {
		return err
	}
	return s.send(v, http.StatusOK, &b)
}

func (s *server) send(v *visit, status int, b *bytes.Buffer) error {
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, err := b.WriteTo(v.w)
	if err != nil {
		s.Log.DebugContext(v.r.Context(), "page: the browser is gone", "err", err)
	}
	return nil
}
