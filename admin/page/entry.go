package page

import (
	"net/http"
	"time"

	"github.com/weir-go/weir/admin/people"
)

// entryBody is a screen about logging in.
type entryBody struct {
	people.Screen
	Title string
	Level level
}

// Entry returns the Render of people.Options: pages about logging in look like the others.
func Entry(o EntryOptions) func(w http.ResponseWriter, r *http.Request, status int, s people.Screen) {
	server := &server{Options: Options{Demo: o.Demo, Now: time.Now}}
	return func(w http.ResponseWriter, r *http.Request, status int, s people.Screen) {
		body := &entryBody{Screen: s, Title: "Log in", Level: note}
		switch s.Kind {
		case people.ScreenLogin:
		case people.ScreenLink:
			body.Title = "Log in with a link"
		case people.ScreenNoRights:
			body.Title, body.Level = "You have no rights here yet", warn
		case people.ScreenOut:
			body.Title, body.Level = "You are logged out", good
		case people.ScreenMissing:
			body.Title, body.Level = "Nobody can log in at the moment", bad
		}
		if status >= http.StatusBadRequest && body.Level == note {
			body.Level = warn
		}
		setHeaders(w.Header())
		v := &visit{w: w, r: r, now: server.Now()}
		if err := server.show(v, status, "entry", frame{Title: body.Title, Body: body}); err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
		}
	}
}

// EntryOptions are those of Entry.
type EntryOptions struct {
	// Demo shows that nothing of it is real.
	Demo bool
}
