package people

import (
	"html/template"
	"net/http"
)

var plainPage = template.Must(template.New("entry").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>weir-admin</title></head><body><main><h1>weir-admin</h1>
{{with .Message}}<p>{{.}}</p>{{end}}{{with .Person}}<p>Your id: <code>{{.}}</code></p>{{end}}
{{if .Start}}<p><a href="{{.Start}}">Log in with {{.Provider}}</a></p>{{end}}
<form method="post" action="{{.Post}}"><label>Code of a link <input name="secret" autocomplete="off" required></label>
<button>Open the session</button></form></main></body></html>
`))

// plain is the Render of those who have none.
func plain(w http.ResponseWriter, _ *http.Request, status int, s Screen) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	_ = plainPage.Execute(w, s) // the client is gone
}
