package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var files embed.FS

// addresses are the paths of the files, by name. A path changes with its file, so that browsers may keep it for good.
var addresses = func() map[string]string {
	all := map[string]string{}
	entries, err := files.ReadDir("static")
	if err != nil {
		panic(err) // it is part of the program
	}
	for _, entry := range entries {
		data, err := files.ReadFile("static/" + entry.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(data)
		all[entry.Name()] = "/static/" + base64.RawURLEncoding.EncodeToString(sum[:9]) + "/" + entry.Name()
	}
	return all
}()

// static returns the path of a file.
func static(name string) string { return addresses[name] }

// serveStatic serves the files.
func serveStatic(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	if addresses[name] != r.URL.Path {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	if strings.HasSuffix(name, ".svg") {
		w.Header().Set("Content-Type", "image/svg+xml")
	}
	http.ServeFileFS(w, r, files, "static/"+name)
}
