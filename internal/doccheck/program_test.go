package doccheck

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sixth takes the place of http.ListenAndServe in the README's program: it prints the answer to the sixth request.
const sixth = `package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
)

func sixth(h http.Handler) error {
	s := httptest.NewServer(h)
	defer s.Close()
	for range 5 {
		if _, err := http.Get(s.URL + "/hello"); err != nil {
			return err
		}
	}
	res, err := http.Get(s.URL + "/hello")
	if err != nil {
		return err
	}
	fmt.Println(res.Proto, res.Status)
	if err := res.Header.Write(os.Stdout); err != nil {
		return err
	}
	if _, err := os.Stdout.ReadFrom(res.Body); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}
`

// moments are the numbers of an answer that depend on when it is given.
var moments = regexp.MustCompile(`(Retry-After|X-Ratelimit-Reset): \d+`)

// The README begins with a program and what curl prints of its sixth answer; both stand on the first screen, and the
// list of tasks begins at once.
func TestReadmeBegins(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) > 230 {
		t.Errorf("%d lines; at most 230", len(lines))
	}
	if at := slices.Index(lines, "| | |"); at < 0 || at >= 40 {
		t.Errorf("the first table is in line %d; at most 40", at+1)
	}
	found := blocks(string(text))
	if len(found) < 2 || found[0].language != "go" || found[1].language != "console" {
		t.Fatal("it does not begin with a program and its answer")
	}
	served := strings.Replace(found[0].text, `http.ListenAndServe("127.0.0.1:8080", `, "sixth(", 1)
	got := moments.ReplaceAllString(run(t, map[string]string{"main.go": served, "sixth.go": sixth}), "$1: some")
	command, answer, _ := strings.Cut(found[1].text, "\n")
	if !strings.HasPrefix(command, "$ for i in 1 2 3 4 5 6; do curl -i 127.0.0.1:8080/hello; done") {
		t.Errorf("the command is %q", command)
	}
	for line := range strings.Lines(moments.ReplaceAllString(answer, "$1: some")) {
		if !strings.Contains(got, strings.TrimSpace(line)) {
			t.Errorf("the README shows %q; the answer is\n%s", strings.TrimSpace(line), got)
		}
	}
}

// run runs a program of these files as a package of the module, and returns what it prints.
func run(t *testing.T, files map[string]string) string {
	t.Helper()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const folder = "internal_doccheck_program"
	overlay := map[string]string{}
	for name, text := range files {
		kept := filepath.Join(dir, name)
		if err := os.WriteFile(kept, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(top, folder, name)] = kept
	}
	table, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), table, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./"+folder)
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
