package filesource_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/policies/filesource"
	"github.com/weir-go/weir/internal/race"
)

// bombs are files that could cost a parser much more than their size.
func bombs() map[string]string {
	repeat := func(head, what string, most int) string { // as often as the bounds allow, or if most is 0, as often as fits
		if n := (filesource.MaxSize - len(head)) / len(what); most == 0 || n < most {
			most = n
		}
		return head + strings.Repeat(what, most)
	}
	indented := func(line string) string {
		var b strings.Builder
		for i := 0; b.Len()+i+len(line) < filesource.MaxSize; i++ {
			b.WriteString(strings.Repeat(" ", i))
			b.WriteString(line)
		}
		return b.String()
	}
	const lines, marks = 199_990, 299_000
	return map[string]string{
		"brackets":                repeat("", "[", 0),
		"braces":                  repeat("", "{", 0),
		"empty lists":             repeat("[", "[],", marks/2),
		"one key":                 repeat("", "a: b\n", lines),
		"one key in a document":   repeat("format: 1\npolicies:\n a:\n  tiers:\n", "   a: 1\n", lines),
		"keys without values":     repeat("", "? a\n", lines),
		"other keys":              repeat("format: 1\n", "a: &a {}\n", 99_000),
		"dashes":                  repeat("", "- ", 0),
		"dashes within bounds":    repeat("", "- ", marks),
		"items":                   repeat("", "- a\n", lines),
		"empty items":             repeat("", "-\n", lines),
		"commas":                  repeat("[", ",", 0),
		"texts with commas":       repeat("[", "a,", marks),
		"names with commas":       repeat("{", "a,", marks),
		"pairs":                   repeat("{", "a: b,", marks/2),
		"anchors":                 repeat("", "- &a a\n", marks/2),
		"aliases":                 repeat("- &a a\n", "- *a\n", marks/2-1),
		"laughs":                  "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
		"tags":                    repeat("", "- !a a\n", marks/2),
		"comments":                repeat("", "#\n", lines),
		"long comments":           repeat("", "#aaaaaaaaa\n", lines),
		"a comment on each line":  repeat("", "a: b # c\n", marks/2),
		"comments as tables":      repeat("a:\n", "# | a | b |\n  b: c\n", 59_000),
		"comments before items":   repeat("", "#\n- a\n", lines/2),
		"comments after items":    repeat("", "a:\n #\n", lines/2),
		"comments in a list":      repeat("[", "a, # b\n", marks/2),
		"a long comment":          repeat("#", "a", 0),
		"a long word":             repeat("", "a", 0),
		"words":                   repeat("", "a ", 0),
		"a text":                  repeat(`"`, `\n`, 0),
		"lines of a text":         repeat(`"`, "a\n ", lines),
		"lines of a plain text":   repeat("", "a\n ", lines),
		"lines of a block":        repeat("a: |\n", " b\n", lines),
		"lines of a folded one":   repeat("a: >\n", " b\n", lines),
		"spaces":                  repeat("", " ", 0),
		"tabs":                    repeat("", "\t", 0),
		"empty lines":             repeat("", "\n", lines),
		"carriage returns":        repeat("", "\r", 0),
		"documents":               repeat("", "--- a\n", marks/3-1),
		"ends of documents":       repeat("", "a\n...\n", lines/2),
		"directives":              repeat("", "%a b\n", lines),
		"colons":                  repeat("", ": ", marks),
		"question marks":          repeat("", "? ", marks),
		"deep objects":            indented("a:\n"),
		"deep objects, comments":  indented("a: #\n"),
		"deep lists":              indented("-\n"),
		"beyond bounds: texts":    repeat("[", "a,", 0),
		"beyond bounds: names":    repeat("", "? a\n", 0),
		"beyond bounds: comments": repeat("", "a: b # c\n", 0),
		"beyond bounds: lists":    repeat("[", "[],", 0),
		"zeros":                   strings.Repeat("\x00", filesource.MaxSize),
		"noise":                   strings.Repeat("\xc3\x28", filesource.MaxSize/2),
	}
}

// bombEnv marks the child process, which reads a bomb.
const bombEnv = "WEIR_BOMB"

// Whatever 2 MiB of bytes a file has, it is refused with little time and memory: 2 s of a processor and 400 MB at most.
// Each is read by a process of its own, whose use the system has counted.
func TestBombs(t *testing.T) {
	t.Parallel()
	if os.Getenv(bombEnv) != "" {
		text, err := io.ReadAll(os.Stdin)
		require.NoError(t, err)
		_, err = filesource.Parse(text)
		require.Error(t, err)
		require.Less(t, len(err.Error()), 100<<10)
		return
	}
	if race.Enabled {
		t.Skip("the race detector takes ten times as much")
	}
	const (
		most   = 400 << 20
		within = 2 * time.Second
	)
	for name, text := range bombs() {
		assert.LessOrEqual(t, len(text), filesource.MaxSize, name)
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBombs$")
		child.Env = append(os.Environ(), bombEnv+"=1")
		child.Stdin = strings.NewReader(text)
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		used, ok := child.ProcessState.SysUsage().(*syscall.Rusage)
		require.True(t, ok)
		took := child.ProcessState.UserTime() + child.ProcessState.SystemTime()
		t.Logf("%-24s %v of a processor, %d MB", name, took.Round(time.Millisecond), used.Maxrss>>10)
		assert.Less(t, used.Maxrss<<10, int64(most), name)
		// A processor that two share is half as fast. What grows by the square of the size takes 20 s and more.
		assert.Less(t, took, 3*within, name)
	}
}
