package doccheck

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// public lists the packages that users import.
var public = []string{
	"core", "core/enforce", "core/explain", "core/follow", "core/guard", "core/policies", "core/policies/filesource", "core/policies/redissource", "core/rediscell", "core/redisstore", "core/stats", "core/storetest", "lua",
	"keyfunc", "nethttp", "nethttp/gateway", "nethttp/obey", "ginmw", "echomw", "echo5mw", "fibermw", "fiber3mw", "grpcmw", "grpcmw/envoyrls", "observe", "observe/inspect", "observe/promweir", "observe/otelweir",
}

// Methods by which the standard library uses a value need no example.
var standard = regexp.MustCompile(`\.(?:Error|Unwrap|String|MarshalText|UnmarshalText)$`)

// Each exported name of a package that users import stands in an example, in a document or on the package's page; or,
// if it is a type, some name of which it is the type.
func TestNamesAreShown(t *testing.T) {
	t.Parallel()
	shown := wordsOf(shownTexts(t))
	for _, dir := range public {
		names, text := exported(t, dir)
		page := wordsOf(text)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			found := func(name string) bool { return isShown(name, filepath.Base(dir), shown, page) }
			if standard.MatchString(name) || found(name) || slices.ContainsFunc(names[name], found) {
				continue
			}
			t.Errorf("%s: %s stands in no example and no document", dir, name)
		}
		if len(names) == 0 {
			t.Errorf("%s: no names", dir)
		}
	}
}

// isShown reports whether a name of a package, such as "Parse" or "Limit.Burst", stands in a text of others, or on the
// page of the package itself. A method or a field is found by its name alone.
func isShown(name, pkg string, texts, page words) bool {
	if _, member, ok := strings.Cut(name, "."); ok {
		return texts[member] || page[member]
	}
	return texts[pkg+"."+name] || page[name] || texts["Example"+name]
}

// words are the words of a text, and its pairs such as "core.Parse".
type words map[string]bool

func wordsOf(text string) words {
	all := words{}
	last, end := "", -1
	for _, at := range word.FindAllStringIndex(text, -1) {
		w := text[at[0]:at[1]]
		if all[w] = true; end+1 == at[0] && end > 0 && text[end] == '.' {
			all[last+"."+w] = true
		}
		last, end = w, at[1]
	}
	return all
}

var word = regexp.MustCompile(`\w+`)

// shownTexts returns the code of all documents, examples and example programs.
func shownTexts(t *testing.T) string {
	t.Helper()
	var texts strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		name, err := filepath.Rel(root, path)
		if err != nil || d.IsDir() {
			return err
		}
		program := strings.HasPrefix(name, "examples") || strings.HasPrefix(name, "recipes")
		switch {
		case filepath.Ext(name) == ".md" && !strings.HasPrefix(name, "CHANGELOG"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, b := range blocks(string(text)) {
				texts.WriteString(b.text)
			}
			for _, span := range regexp.MustCompile("`[^`\n]+`").FindAllString(outside(string(text)), -1) {
				texts.WriteString(span + "\n")
			}
		case filepath.Ext(name) == ".go" && program:
			text, err := os.ReadFile(path)
			texts.Write(text)
			return err
		case strings.HasSuffix(name, "_test.go"):
			return examples(path, &texts)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts.String()
}

// examples writes the source of the Example functions of a file.
func examples(path string, to *strings.Builder) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Example") {
			to.Write(text[fset.Position(f.Pos()).Offset:fset.Position(f.End()).Offset])
			to.WriteByte('\n')
		}
	}
	return nil
}

// exported returns the exported names of a package, with methods and fields as "Type.Name", and the comment on the
// package. With a type come its constants, variables and constructors.
func exported(t *testing.T, dir string) (names map[string][]string, page string) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(fset, files, module+"/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	names = map[string][]string{}
	add := func(of string, vs []*doc.Value, fs []*doc.Func) {
		for _, v := range vs {
			for _, name := range v.Names {
				if token.IsExported(name) {
					names[name] = nil
					names[of] = append(names[of], name)
				}
			}
		}
		for _, f := range fs {
			names[f.Name] = nil
			names[of] = append(names[of], f.Name)
		}
	}
	for _, kind := range p.Types {
		names[kind.Name] = nil
		add(kind.Name, kind.Consts, nil)
		add(kind.Name, kind.Vars, kind.Funcs)
		for _, f := range kind.Methods {
			names[kind.Name+"."+f.Name] = nil
		}
		for _, name := range members(kind) {
			names[kind.Name+"."+name] = nil
		}
	}
	add("", p.Consts, nil)
	add("", p.Vars, p.Funcs)
	delete(names, "")
	return names, p.Doc
}

// members returns the exported fields of a struct and the methods of an interface.
func members(kind *doc.Type) (names []string) {
	for _, spec := range kind.Decl.Specs {
		var fields *ast.FieldList
		switch body := spec.(*ast.TypeSpec).Type.(type) {
		case *ast.StructType:
			fields = body.Fields
		case *ast.InterfaceType:
			fields = body.Methods
		default:
			continue
		}
		for _, field := range fields.List {
			for _, name := range field.Names {
				if name.IsExported() {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

func TestIsShown(t *testing.T) {
	t.Parallel()
	texts := wordsOf("f := core.Parse(text)\nx.Burst = 1\nfunc ExampleSet() {}\n")
	page := wordsOf("Page shows [Take] and [Limit.Rate].")
	for name, want := range map[string]bool{
		"Parse": true, "Pars": false, "Burst": false, "Limit.Burst": true, "Limit.Rate": true, "Limit.Period": false,
		"Set": true, "Take": true, "Text": false,
	} {
		if got := isShown(name, "core", texts, page); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
