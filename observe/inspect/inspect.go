package inspect

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/observe"
)

// Options are the options of [Handler]. The zero value shows the page to this machine alone, with keys masked.
type Options struct {
	// Allow reports whether the page may be shown to the sender of a request, such as one that a login of the program has
	// found to be an operator. nil means that the request must come from a loopback address, by the name localhost or a
	// loopback address, and without any header that a proxy adds. Whatever Allow reports, requests that the page of
	// another site has made are refused.
	Allow func(*http.Request) bool
	// Unmasked shows keys as they are. Otherwise an address is shown as its network, /24 or /48, and any other part of a
	// key as a short hash, which is the same until the program ends.
	Unmasked bool
}

// Handler returns a handler that shows what o knows: whether the store is well, which server is not, since when, and what
// decides meanwhile; what is refused most, and to whom. Mount it where the program has its other pages for operators, at
// best on a listener of its own that only this machine reaches:
//
//	mux.Handle("/debug/weir", inspect.Handler(o, inspect.Options{}))
//
// Browsers get HTML, and curl gets text; "?format=html", "?format=text" and "?format=json" choose. A peer that may not
// see the page gets 403. The page changes nothing, asks no store, and is made at most once a second, however many look at
// it. Its form, which explains a key, asks the store once, and takes nothing; so do the worst callers of the fleet.
func Handler(o *observe.Observer, opts Options) http.Handler {
	host, _ := os.Hostname() // "" does, beside the process id
	return &handler{
		o: opts, observer: o, asking: make(chan struct{}, maxAsking), masker: newMasker(opts.Unmasked), program: host + ":" + strconv.Itoa(os.Getpid()),
	}
}

// handler serves the page.
type handler struct {
	o        Options
	observer *observe.Observer
	masker   *masker
	program  string

	asking chan struct{} // holds an element for each request that asks the store

	mu   sync.Mutex
	made time.Time
	page *page // which nobody changes
}

const (
	pageAge   = time.Second
	refresh   = 5 // seconds
	maxAsking = 4
)

// current returns the page, which is at most a second old.
func (h *handler) current() *page {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.page == nil || time.Since(h.made) >= pageAge {
		h.page = h.gather()
		h.made = time.Now()
	}
	return h.page
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", policyHeader)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "same-origin") // without a referrer, browsers send the form as from nowhere
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Vary", "Accept")
	if err := h.admit(r); err != nil {
		h.say(w, http.StatusForbidden, err.Error())
		return
	}
	if h.observer == nil {
		h.say(w, http.StatusInternalServerError, "there is no observe.Observer; give Handler one that observe.New has returned")
		return
	}
	query := r.URL.Query()
	format := formatOf(query.Get("format"), r.Header.Get("Accept"))
	switch {
	case r.Method == http.MethodPost && query.Has("explain"):
		h.serveExplanation(w, r, format)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD, POST")
		h.say(w, http.StatusMethodNotAllowed, "use GET; POST is for the form at ?explain")
	case query.Has("explain") && format == formatHTML:
		h.html(w, http.StatusOK, &content{View: &view{Title: "weir: explain a key", Head: h.program}, Form: h.form(query.Get("explain"))})
	case query.Has("fleet"):
		h.serveFleet(w, r, format, query.Get("fleet"))
	case format == formatJSON:
		h.json(w, h.current())
	case format == formatText:
		h.text(w, h.current().view().text())
	default:
		c := &content{View: h.current().view(), Refresh: refresh, Fleet: h.observer.Boards() != nil}
		if query.Get("refresh") == "0" {
			c.Refresh = 0
		}
		h.html(w, http.StatusOK, c)
	}
}

// The formats of the page.
const (
	formatHTML = "html"
	formatText = "text"
	formatJSON = "json"
)

// formatOf returns the format that a request asks for: by name, or else the one that its client is for. Only browsers
// ask for HTML by name.
func formatOf(name, accept string) string {
	switch name {
	case formatHTML, formatText, formatJSON:
		return name
	}
	switch {
	case strings.Contains(accept, "text/html"):
		return formatHTML
	case strings.Contains(accept, "application/json"):
		return formatJSON
	}
	return formatText
}

func (h *handler) say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte("weir: " + text + "\n")) // the client is gone
}

func (h *handler) text(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text))
}

func (h *handler) json(w http.ResponseWriter, value any) {
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		h.say(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(data, '\n'))
}

// content is the data of the template: a view, or with Form the form.
type content struct {
	Style   template.CSS
	Refresh int // seconds, or 0
	View    *view
	Form    *form
	Back    bool // the page is another one
	Fleet   bool // there are worst callers of the fleet
}

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// policyHeader lets a browser do nothing but show the page and send its form. The style is known by its sum.
var policyHeader = func() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

func (h *handler) html(w http.ResponseWriter, status int, c *content) {
	c.Style = template.CSS(pageCSS) //nolint:gosec // a constant
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, c); err != nil {
		h.say(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}
