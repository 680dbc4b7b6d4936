package doccheck

import (
	"fmt"
	"go/ast"
	"go/doc"
	docs "go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docLink matches what is meant as a link to a name, such as [Guard.With] or [*guard.Config], but not HOST in capitals,
// nor the argument of a type, as in atomic.Pointer[Set].
var docLink = regexp.MustCompile(`(?:^|[^\w\]])\[\*?((?:[a-z]\w*\.)?[A-Z]\w*[a-z]\w*(?:\.[A-Z]\w*)?)\]`)

// Every link to a name in a comment leads to a name: to one of the package, or of a package that it imports.
func TestDocLinks(t *testing.T) {
	t.Parallel()
	packages := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 50 {
		t.Errorf("only %d packages", len(packages))
	}
	for _, paths := range packages {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, path := range paths {
			file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		dead, err := deadDocLinks(fset, files)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range dead {
			t.Error(d)
		}
	}
}

// deadDocLinks returns the links of a package's comments that lead nowhere, with their places.
func deadDocLinks(fset *token.FileSet, files []*ast.File) (dead []string, err error) {
	of, err := doc.NewFromFiles(fset, files, "example.com/p", doc.AllDecls|doc.PreserveAST)
	if err != nil {
		return nil, err
	}
	parser := of.Parser()
	for _, file := range files {
		for _, group := range file.Comments {
			if group.Pos() > file.Package && !declares(file, group) {
				continue // go doc does not show it
			}
			for _, link := range plainLinks(parser.Parse(group.Text()).Content) {
				dead = append(dead, fmt.Sprintf("%s: [%s] is no name here; import its package, or leave out the brackets", fset.Position(group.Pos()), link))
			}
		}
	}
	return dead, nil
}

// declares reports whether a comment belongs to a declaration or a field.
func declares(file *ast.File, group *ast.CommentGroup) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		var comments []*ast.CommentGroup
		switch n := n.(type) {
		case *ast.FuncDecl:
			comments = []*ast.CommentGroup{n.Doc}
		case *ast.GenDecl:
			comments = []*ast.CommentGroup{n.Doc}
		case *ast.TypeSpec:
			comments = []*ast.CommentGroup{n.Doc, n.Comment}
		case *ast.ValueSpec:
			comments = []*ast.CommentGroup{n.Doc, n.Comment}
		case *ast.Field:
			comments = []*ast.CommentGroup{n.Doc, n.Comment}
		}
		found = found || slices.Contains(comments, group)
		return !found
	})
	return found
}

// plainLinks returns what is meant as a link and is none, in a text that was parsed.
func plainLinks(blocks []docs.Block) (found []string) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *docs.Paragraph:
			for _, text := range b.Text {
				plain, ok := text.(docs.Plain)
				if !ok {
					continue
				}
				for _, m := range docLink.FindAllStringSubmatch(string(plain), -1) {
					found = append(found, m[1])
				}
			}
		case *docs.List:
			for _, item := range b.Items {
				found = append(found, plainLinks(item.Content)...)
			}
		}
	}
	return found
}

func TestDeadDocLinksAreFound(t *testing.T) {
	t.Parallel()
	const source = `// Package p is for [Type] and [Type.M], [*bytes.Buffer], [io.Reader] and [Gone].
package p

import "bytes"

// Type has an atomic.Pointer[Set], see [HOST] and:
//
//   - [Type.N]
type Type struct {
	b bytes.Buffer // as [bytes.Reader] and [rand.Rand] have
}

// M returns a [Set].
func (Type) M() {
	// A comment within a function is not shown: [Nothing].
}
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := deadDocLinks(fset, []*ast.File{file})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range dead {
		_, d, _ = strings.Cut(d, "[")
		d, _, _ = strings.Cut(d, "]")
		got = append(got, d)
	}
	if want := []string{"Gone", "Type.N", "rand.Rand", "Set"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
