package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed *.patch
var patches embed.FS

// mutant is a patch that breaks the library.
type mutant struct {
	name   string
	what   string   // it breaks
	checks []string // of the soak; one of them has to notice it
	patch  string
}

// read returns all mutants. A patch begins with two lines: what it breaks, and "Noticed by: " with names of checks.
func read() ([]mutant, error) {
	names, err := fs.Glob(patches, "*.patch")
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, name := range names {
		text, err := patches.ReadFile(name)
		if err != nil {
			return nil, err
		}
		what, rest, _ := strings.Cut(string(text), "\n")
		by, diff, _ := strings.Cut(rest, "\n")
		checks, ok := strings.CutPrefix(by, "Noticed by: ")
		if what == "" || !ok || checks == "" {
			return nil, fmt.Errorf("mutants: %s begins with %q and %q, expected what it breaks and \"Noticed by: checks\"", name, what, by)
		}
		all = append(all, mutant{strings.TrimSuffix(name, ".patch"), what, strings.Split(checks, ", "), diff})
	}
	return all, nil
}

// breed copies the library to dir and breaks it there.
func (m mutant) breed(ctx context.Context, dir string) error {
	root, err := root(ctx)
	if err != nil {
		return err
	}
	if err := copyTree(root, dir); err != nil {
		return err
	}
	apply := exec.CommandContext(ctx, "git", "apply", "-")
	apply.Dir, apply.Stdin = dir, strings.NewReader(m.patch)
	if out, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("its patch does not fit; make the same change again and write it with git diff: %w\n%s", err, out)
	}
	return nil
}

// root returns the directory of the library that this program was built with.
func root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/weir-go/weir").Output()
	if err != nil {
		return "", fmt.Errorf("mutants: start it in the directory bench of a checkout: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// copyTree copies all files but those of git and of editors.
func copyTree(from, to string) error {
	return fs.WalkDir(os.DirFS(from), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != "." && strings.HasPrefix(d.Name(), ".") && d.IsDir():
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, path), 0o750)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(filepath.Join(from, path)) //nolint:gosec // a file of the checkout
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), text, 0o600)
	})
}
