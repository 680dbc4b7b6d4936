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
	alert   = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)
	runbook = regexp.MustCompile(`(?m)^ *runbook: (.*)$`)
)

// Each alert has a runbook, which is a heading of a document.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "observe/ops/weir.rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	rules := strings.Split(string(text), "- alert: ")[1:]
	for _, rule := range rules {
		name, _, _ := strings.Cut(rule, "\n")
		if problem := runbookOf(t, rule); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
	}
	if all := alert.FindAllString(string(text), -1); len(rules) == 0 || len(rules) != len(all) {
		t.Errorf("%d rules in %d alerts", len(rules), len(all))
	}
}

// pageRefers finds headings behind the constant docs of that package, and those with their file.
var pageRefers = regexp.MustCompile(`(?:docs ?\+ ?"|"(docs/[\w-]+\.md))(#[\w-]+)"`)

// What the page of observe/inspect refers to is a heading of a document, too.
func TestPageRefersToHeadings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "observe/inspect/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, see := range pageRefers.FindAllStringSubmatch(string(text), -1) {
			found++
			path := see[1] + see[2]
			if see[1] == "" { // the constant docs
				path = "docs/when-redis-fails.md" + see[2]
			}
			if problem := runbookOf(t, "x\n        runbook: https://github.com/weir-go/weir/blob/main/"+path+"\n"); problem != "" {
				t.Errorf("%s: %s", filepath.Base(name), problem)
			}
		}
	}
	if found < 8 {
		t.Errorf("%d references were found", found)
	}
}

// runbookOf returns the problem with the runbook of a rule, or "".
func runbookOf(t *testing.T, rule string) string {
	t.Helper()
	found := runbook.FindStringSubmatch(rule)
	if found == nil {
		return "no runbook"
	}
	path, ok := strings.CutPrefix(found[1], "https://github.com/weir-go/weir/blob/main/")
	if !ok {
		return found[1] + ": leads elsewhere"
	}
	file, anchor, _ := strings.Cut(path, "#")
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	switch {
	case err != nil:
		return path + ": there is no such file"
	case !slices.Contains(anchors(string(text)), anchor):
		return path + ": there is no such heading"
	}
	return ""
}

func TestRunbooksAreFound(t *testing.T) {
	t.Parallel()
	const at = "        runbook: https://github.com/weir-go/weir/blob/main/"
	for rule, want := range map[string]string{
		"Gone\n  for: 1m\n":                              "no runbook",
		"Away\n        runbook: https://x.test\n":        "https://x.test: leads elsewhere",
		"None\n" + at + "docs/none.md#a\n":               "docs/none.md#a: there is no such file",
		"Typo\n" + at + "docs/alerts.md#a\n":             "docs/alerts.md#a: there is no such heading",
		"Good\n" + at + "docs/alerts.md#weirstoreslow\n": "",
	} {
		if got := runbookOf(t, rule); got != want {
			t.Errorf("%q: %q, want %q", rule, got, want)
		}
	}
}
