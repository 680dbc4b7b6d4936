package doccheck

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every link from one document to another leads to a file that exists, and to a heading in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	var documents []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, found...)
	}
	if len(documents) < 5 {
		t.Fatalf("only %d documents", len(documents))
	}
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range targets(string(text)) {
			file, anchor, _ := strings.Cut(target, "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(file))
			}
			there, err := os.ReadFile(to)
			if info, none := os.Stat(to); none == nil && info.IsDir() {
				err = nil
			}
			switch {
			case err != nil:
				t.Errorf("%s: %s: there is no such file", path, target)
			case anchor != "" && !slices.Contains(anchors(string(there)), anchor):
				t.Errorf("%s: %s: there is no such heading", path, target)
			}
		}
	}
}

// targets are the links of a text to other files and headings of the repository.
func targets(text string) (found []string) {
	for _, m := range link.FindAllStringSubmatch(outside(text), -1) {
		if !strings.Contains(m[1], "://") {
			found = append(found, m[1])
		}
	}
	return found
}

// anchors are the names that headings have in links.
func anchors(text string) (found []string) {
	for _, m := range heading.FindAllStringSubmatch(outside(text), -1) {
		found = append(found, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return found
}

// outside is a text without what stands in fences.
func outside(text string) string {
	for _, b := range blocks(text) {
		text = strings.Replace(text, b.text, "", 1)
	}
	return text
}

func TestLinksAreFound(t *testing.T) {
	t.Parallel()
	document := text("# What's `new`, then?\n\nSee [a](b.md#c), [here](#d) and [there](https://example.com/e).\n\n'''go\n# no heading\nf := g[0](h)\n'''\n")
	if got := targets(document); !slices.Equal(got, []string{"b.md#c", "#d"}) {
		t.Errorf("links %q", got)
	}
	if got := anchors(document); !slices.Equal(got, []string{"whats-new-then"}) {
		t.Errorf("headings %q", got)
	}
}

// pathOf is the path of a file in a document, with its directory.
var pathOf = regexp.MustCompile("`((?:[a-z0-9_.]+/)+[a-z0-9_]+\\.(?:go|lua|md))`")

// Each file that a document names exists, but for "name.go", which a reader chooses.
func TestNamedFilesExist(t *testing.T) {
	t.Parallel()
	found := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		documents, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range documents {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range pathOf.FindAllStringSubmatch(string(text), -1) {
				if base := filepath.Base(m[1]); base == "name.go" || base == "name.lua" {
					continue
				}
				found++
				if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(m[1]))); err != nil {
					t.Errorf("%s: %s: there is no such file", path, m[1])
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d files", found)
	}
}
