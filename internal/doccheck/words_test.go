package doccheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// phrases are refused in comments, in the documents, and in the texts of errors and log lines.
var phrases = []struct {
	bad    *regexp.Regexp
	advice string
}{
	{
		regexp.MustCompile(`(?i)\b(?:is|are|be|was|were|been|being)(?: \w+)? told\b(?: apart| from)?`),
		"nobody is told: a log receives a line, a function is called, a text says",
	},
	{regexp.MustCompile(`(?i)\bone['’]s own\b`), `say "your own", or leave it out`},
	{regexp.MustCompile(`(?i)\btells? whether\b`), `write "reports whether"`},
	{regexp.MustCompile(`(?i)\bleaps about\b`), `write "changes"`},
	{regexp.MustCompile(`(?i)\b(?:is|are) none of an?\b`), `write "is not a ..."`},
	{
		regexp.MustCompile(`(?i)\b(?:is|are|was|were)(?: for)? how (?:many|much|long|often|far)\b`),
		`write "is the number of ...", "is the time for which ..."`,
	},
}

// riddle matches a sentence that defines nothing: its first group is the definition.
var riddle = regexp.MustCompile("(?:^|[.:;] )((?:(?:A|An|The|Each|Every|a|an|the|each|every) )?" +
	"[`*[]*[\\w.]*\\w[`*\\]]*(?:(?:,| and| or| of| in| to) [\\w.]*\\w)*(?:,[^.:;]{1,60},)? " +
	`(?:is|are|was|were)(?: of| for| from| by| in| to)? ` +
	`(?:what|whatever|who|whom|whose|when|how|where|why|which|whether)\b)`)

// sayings matches the same in a comment on what is declared there, whose names come first.
var sayings = regexp.MustCompile("^[\\w.]+(?:(?:,| and) [\\w.]+)*(?:,[^.]{1,60},)? (?:says?|tells?) " +
	`(?:of |for |from |by |in |to )?(?:what|whatever|who|whom|whose|when|how|where|why|which)\b`)

// notNames begin sentences that define nothing, such as "This is why".
var notNames = regexp.MustCompile(`(?i)^(?:that|this|these|those|it|here|there|what|which|who|how|where|when|nor|so)\b`)

// beginsWithWho matches a sentence whose subject is a relative clause. A question ends in a question mark.
var beginsWithWho = regexp.MustCompile(`(?:^|[.!?:;|]["'` + "`" + `)*]*\s+)[("*]*(Who(?:ever)?\b[^.!?|]*(?:[.!?|]|$))`)

const (
	riddleAdvice = `defines by riddle ("is what", "says how"): write "<name> is the <noun> that ..." or "<name> returns ..."`
	whoAdvice    = `a sentence begins with "Who" only if it is a question: write "A caller that ..."`
)

// A passage is a text of one piece: a comment, a paragraph, an item of a list, a cell of a table.
type passage struct {
	file     string
	text     string
	lines    []int // of each byte of text
	declares bool  // a comment on what is declared there
	literal  bool  // a string of a program
}

// A wording is a passage, or a part of it, that ought to be said in another way.
type wording struct {
	file   string
	line   int
	text   string
	advice string
}

func (w wording) String() string {
	return fmt.Sprintf("%s:%d: %q: %s", w.file, w.line, w.text, w.advice)
}

// findings returns what is badly said in a passage.
func (p passage) findings() (found []wording) {
	add := func(at, end int, advice string) {
		if p.text[at:end] != "" {
			found = append(found, wording{p.file, p.lines[at], p.text[at:end], advice})
		}
	}
	for _, phrase := range phrases {
		for _, at := range phrase.bad.FindAllStringIndex(p.text, -1) {
			if !strings.HasSuffix(p.text[:at[1]], " apart") && !strings.HasSuffix(p.text[:at[1]], " from") {
				add(at[0], at[1], phrase.advice)
			}
		}
	}
	if p.literal {
		return found
	}
	for _, at := range riddle.FindAllStringSubmatchIndex(p.text, -1) {
		if !notNames.MatchString(p.text[at[2]:]) {
			add(at[2], at[3], riddleAdvice)
		}
	}
	if at := sayings.FindStringIndex(p.text); at != nil && p.declares && !notNames.MatchString(p.text) {
		add(at[0], at[1], riddleAdvice)
	}
	for _, at := range beginsWithWho.FindAllStringSubmatchIndex(p.text, -1) {
		if p.text[at[3]-1] != '?' {
			add(at[2], min(at[3], at[2]+60), whoAdvice)
		}
	}
	return found
}

// join makes a passage of lines, the first of which is line from of the file.
func join(file string, from int, lines []string) (p passage) {
	p.file = file
	var text strings.Builder
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if text.Len() > 0 && line != "" {
			line = " " + line
		}
		text.WriteString(line)
		for range len(line) {
			p.lines = append(p.lines, from+i)
		}
	}
	p.text = text.String()
	return p
}

// paragraphs makes a passage of each paragraph.
func paragraphs(file string, from int, lines []string) (found []passage) {
	start := 0
	for i := 0; i <= len(lines); i++ {
		if i < len(lines) && strings.TrimSpace(lines[i]) != "" {
			continue
		}
		if p := join(file, from+start, lines[start:i]); p.text != "" {
			found = append(found, p)
		}
		start = i + 1
	}
	return found
}

// goPassages returns the comments and the strings of a Go file.
func goPassages(name, source string) ([]passage, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []passage
	declares := map[*ast.CommentGroup]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			declares[n.Doc] = true
		case *ast.GenDecl:
			declares[n.Doc] = true
		case *ast.TypeSpec:
			declares[n.Doc], declares[n.Comment] = true, true
		case *ast.ValueSpec:
			declares[n.Doc], declares[n.Comment] = true, true
		case *ast.Field:
			declares[n.Doc], declares[n.Comment] = true, true
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				p := join(name, fset.Position(n.Pos()).Line, []string{text})
				p.literal = true
				found = append(found, p)
			}
		}
		return true
	})
	for _, group := range file.Comments {
		at := fset.Position(group.Pos()).Line
		var lines []string
		for _, c := range group.List {
			for fset.Position(c.Pos()).Line > at+len(lines) {
				lines = append(lines, "")
			}
			if block, ok := strings.CutPrefix(c.Text, "/*"); ok {
				lines = append(lines, strings.Split(strings.TrimSuffix(block, "*/"), "\n")...)
				continue
			}
			lines = append(lines, strings.TrimPrefix(c.Text, "//"))
		}
		for i, p := range paragraphs(name, at, lines) {
			p.declares = declares[group] && i == 0
			found = append(found, p)
		}
	}
	return found, nil
}

// luaPassages returns the comments of a Lua file.
func luaPassages(name, source string) []passage {
	lines := strings.Split(source, "\n")
	for i, line := range lines {
		_, lines[i], _ = strings.Cut(line, "--")
	}
	return paragraphs(name, 1, lines)
}

var (
	item  = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
	title = regexp.MustCompile(`^#+ `)
)

// markdownPassages returns the paragraphs, items, rows and headings of a document.
func markdownPassages(name, source string) (found []passage) {
	lines := strings.Split(source, "\n")
	for _, b := range blocks(source) {
		for i := range strings.Count(b.text, "\n") {
			lines[b.line-1+i] = ""
		}
	}
	var rows []string
	from := 1
	flush := func(next int) {
		found = append(found, paragraphs(name, from, rows)...)
		rows, from = nil, next
	}
	for i, line := range lines {
		marked := item.MatchString(line) || title.MatchString(line) || strings.HasPrefix(line, "|")
		if marked || i > 0 && title.MatchString(lines[i-1]) {
			flush(i + 1)
		}
		line = item.ReplaceAllString(line, "")
		rows = append(rows, strings.Trim(title.ReplaceAllString(line, ""), "| "))
	}
	flush(0)
	return found
}

// passages returns what is to be read in a file, or nothing if it is of another kind.
func passages(name, source string) ([]passage, error) {
	switch filepath.Ext(name) {
	case ".go":
		return goPassages(name, source)
	case ".lua":
		return luaPassages(name, source), nil
	case ".md":
		return markdownPassages(name, source), nil
	}
	return nil, nil
}

// The comments of all programs, their texts and the documents are in plain words.
func TestWords(t *testing.T) {
	t.Parallel()
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if name == "internal/doccheck/words_test.go" || !slices.Contains([]string{".go", ".lua", ".md"}, filepath.Ext(name)) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read, err := passages(name, string(text))
		if err != nil {
			return err
		}
		files++
		for _, p := range read {
			for _, w := range p.findings() {
				t.Error(w)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 300 {
		t.Errorf("only %d files", files)
	}
}

func TestWordsAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, source, want string }{
		{"a.go", "package a\n\n// A is how many there are.\nvar A int\n", "a.go:3: is how many; a.go:3: A is how"},
		{"a.go", "package a\n\n// A is the number of them: what a caller sees is when it ends.\nvar A int\n", ""},
		{"a.go", "package a\n\n// A is a number: the rest of it is what counts.\nvar A int\n", "a.go:3: the rest of it is what"},
		{"a.go", "package a\n\n// A is a number. B was how it ended.\nvar A int\n", "a.go:3: B was how"},
		{"a.go", "package a\n\n// A is a list, by which is how many of them end.\nvar A int\n", "a.go:3: is how many"},
		{"a.go", "package a\n\n// A is whether it ends.\nvar A int\n", "a.go:3: A is whether"},
		{"a.go", "package a\n\n// A, unless it is zero, is what counts.\nvar A int\n", "a.go:3: A, unless it is zero, is what"},
		{"a.go", "package a\n\nvar A int // A says how it ends.\n", "a.go:3: A says how"},
		{"a.go", "package a\n\n// The text says how it ends.\n\nvar A int\n", ""},
		{"a.go", "package a\n\n// A counts. This is why it is odd.\n//\n// This is how it ends.\nvar A int\n", ""},
		{"a.go", "package a\n\n// A counts. The log\n// is told\n// of it.\nvar A int\n", "a.go:4: is told"},
		{"a.go", "package a\n\n// A counts.\n// The log is not\n// told.\nvar A int\n", "a.go:4: is not told"},
		{"a.go", "package a\n\n// A and B cannot be told apart, nor be told from C.\nvar A int\n", ""},
		{"a.go", "package a\n\nvar a = `it is told`\n", "a.go:3: is told"},
		{"a.go", "package a\n\nvar a = \"Who knows\" // who knows\n", ""},
		{"a.go", "package a\n\n// A counts. Who asks gets it.\nvar A int\n", "a.go:3: Who asks gets it."},
		{"a.go", "package a\n\n// A counts. Who asks? The one who needs it.\nvar A int\n", ""},
		{"a.go", "package a\n\n// a tells whether it is so.\nfunc a() {}\n", "a.go:3: tells whether"},
		{"a.go", "package a\n\n// n is an answer in a way of one's own.\nvar n int\n", "a.go:3: one's own"},
		{"a.go", "package a\n\nfunc a() {\n\t// n is what is left.\n\tn := 1\n\t_ = n\n}\n", "a.go:4: n is what"},
		{"a.lua", "local a = 1 -- all of them\n-- x is when it ends\n", ""},
		{"a.lua", "\n-- x is when it ends\n", "a.lua:2: x is when"},
		{"a.md", "# Who is it?\n\nText.\n", ""},
		{"a.md", "Text.\n## Who is it\n\nText.\n", "a.md:2: Who is it"},
		{"a.md", "| a | b |\n| --- | --- |\n| it | Whoever asks |\n", "a.md:3: Whoever asks"},
		{"a.md", "- one\n- Who asks waits.\n", "a.md:2: Who asks waits."},
		{"a.md", "```go\n// A is what is told.\n```\n\nText is told.\n", "a.md:5: is told"},
	} {
		read, err := passages(c.name, c.source)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range read {
			for _, w := range p.findings() {
				got = append(got, fmt.Sprintf("%s:%d: %s", w.file, w.line, w.text))
			}
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s\ngot  %q\nwant %q", c.source, got, c.want)
		}
	}
}
