package gatewaytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// block is a block of a gateway's configuration in docs/gateways.md, after the comment that names it.
var block = regexp.MustCompile("(?ms)^<!-- ([a-z]+: [a-z0-9 ]+) -->\n\n```[a-z]+\n(.*?)^```$")

// Documented returns the block of docs/gateways.md that has a name, such as "nginx: whole".
func Documented(t testing.TB, name string) string {
	t.Helper()
	for _, found := range block.FindAllStringSubmatch(Docs(t), -1) {
		if found[1] == name {
			return found[2]
		}
	}
	t.Fatalf("gatewaytest: docs/gateways.md has no block %q", name)
	return ""
}

// DocumentedNames returns the names of all blocks in docs/gateways.md, in their order.
func DocumentedNames(t testing.TB) (names []string) {
	t.Helper()
	for _, found := range block.FindAllStringSubmatch(Docs(t), -1) {
		names = append(names, found[1])
	}
	return names
}

// Docs returns the text of docs/gateways.md, which it looks for in the directories above the test.
func Docs(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "docs", "gateways.md"))
		if err == nil {
			return string(text)
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	t.Fatal("gatewaytest: there is no docs/gateways.md above this directory")
	return ""
}

// Passing returns the documented configuration of nginx with the two blocks that let requests pass when the endpoint is
// dead.
func Passing(t testing.TB) string {
	t.Helper()
	const location = "    location = /weir-check {\n"
	whole := Documented(t, "nginx: whole")
	if strings.Count(whole, location) != 1 {
		t.Fatalf("gatewaytest: nginx's block has no location of the check:\n%s", whole)
	}
	whole = strings.Replace(whole, location, location+Documented(t, "nginx: in the location of the check"), 1)
	return strings.TrimSuffix(strings.TrimSpace(whole), "}") + Documented(t, "nginx: in the server") + "}\n"
}
