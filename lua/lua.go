// Package lua holds the Redis scripts, for redisstore and other stores that decide in
// one, and nothing else: one file for each algorithm, one for each operation, and the
// frame that all of them share.
//
// A script is composed for the kinds of a policy's limits by unrolling each
// algorithm's sections into the operation's template. It depends on the kinds
// alone, never on a limit's numbers or on any other input, so that a server sees
// few scripts and each of them once.
//
// The header of a file declares its arguments by name and in order, and the text reads
// them as ARG.name, which composing turns into the place of the argument in the script.
package lua

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed *.lua
var files embed.FS

var scripts = load(files)

// The patterns of a header, and of the text: a line "--@ name" opens a section of
// a file, a line "--> name" of a template stands for a section.
var (
	letter    = regexp.MustCompile(`(?m)^-- Letter: (\w)$`)
	borrows   = regexp.MustCompile(`(?m)^-- Sections: (\w+)$`)
	without   = regexp.MustCompile(`(?m)^-- Without: *(.*)$`)
	declares  = regexp.MustCompile(`(?m)^-- Arguments of (\w+): *(.*)$`)
	appends   = regexp.MustCompile(`(?m)^-- Arguments, after those of the limits(?: in (\w+))?: *(.*)$`)
	has       = regexp.MustCompile(`(?m)^-- Arguments(): *(.*)$`)
	opens     = regexp.MustCompile(`(?m)^--@ (\w+)\n`)
	stands    = regexp.MustCompile(`(?m)^( *)--> (\w+)\n`)
	arguments = regexp.MustCompile(`\b(ARG|TEXT)\.(\w+)(?:\[(\w+)\])?`)
	perLimit  = regexp.MustCompile(`_i\b`)
	asNumber  = regexp.MustCompile(`\(ARG\.(\w+) or 0\)(?: \+ 0\b)?|\bARG\.(\w+) \+ 0\b`)
)

// library is the content of the files.
type library struct {
	algorithms map[byte]*algorithm
	templates  map[string]template
}

// algorithm is the file of an algorithm.
type algorithm struct {
	file      string
	arguments map[string][]string // of each operation, in order
	zeros     *regexp.Regexp      // what else its sections read, or nil
	sections  map[string]string
}

// template is a file that is not an algorithm's.
type template struct {
	arguments []string // after those of the limits
	limits    string   // the operation whose arguments of the limits they follow
	text      string
}

func load(from fs.FS) *library {
	l := &library{map[byte]*algorithm{}, map[string]template{}}
	entries, err := fs.Glob(from, "*.lua")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for _, name := range entries {
		doc, text := read(from, name)
		m := letter.FindStringSubmatch(doc)
		if m == nil {
			var t template
			for _, form := range []*regexp.Regexp{appends, has} {
				if m := form.FindStringSubmatch(doc); m != nil {
					t.limits, t.arguments = m[1], strings.Fields(m[2])
				}
			}
			operation := strings.TrimSuffix(name, ".lua")
			t.limits, t.text = cmp.Or(t.limits, operation), text
			l.templates[operation] = t
			continue
		}
		a := &algorithm{file: name, arguments: map[string][]string{}, sections: sections(text)}
		var zeros []string
		if m := borrows.FindStringSubmatch(doc); m != nil {
			if w := without.FindStringSubmatch(doc); w != nil {
				zeros = strings.Fields(w[1])
				name := "(?:" + strings.Join(zeros, "|") + ")"
				a.zeros = regexp.MustCompile(`\(ARG\.` + name + ` or 0\)(?: \+ 0\b)?|\bARG\.` + name + `\b(?: \+ 0\b)?`)
			}
			own := a.sections
			a.file = m[1] + ".lua"
			doc, text = read(from, a.file)
			a.sections = sections(text)
			maps.Copy(a.sections, own)
		}
		for _, m := range declares.FindAllStringSubmatch(doc, -1) {
			a.arguments[m[1]] = slices.DeleteFunc(strings.Fields(m[2]), func(name string) bool { return slices.Contains(zeros, name) })
		}
		l.algorithms[m[1][0]] = a
	}
	return l
}

// read returns a file's documentation, up to the first empty line, and the rest.
func read(from fs.FS, name string) (doc, rest string) {
	text, err := fs.ReadFile(from, name)
	if err != nil {
		panic(err) // the file is embedded
	}
	doc, rest, _ = strings.Cut(string(text), "\n\n")
	return doc, rest
}

// sections splits a file at the lines that open a section.
func sections(text string) map[string]string {
	at := opens.FindAllStringSubmatchIndex(text, -1)
	out := make(map[string]string, len(at))
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		out[text[m[2]:m[3]]] = strings.TrimRight(text[m[1]:end], "\n") + "\n"
	}
	return out
}

// Take returns the script that decides over limits of these kinds, one letter for
// each limit: "f" is a fixed window. Its keys, arguments and reply are those that take.lua and
// the file of each algorithm document.
func Take(kinds string) (script string, err error) { return scripts.compose("take", kinds) }

// UpTo returns the script that takes as many units as limits of these kinds admit;
// see upto.lua.
func UpTo(kinds string) (script string, err error) { return scripts.compose("upto", kinds) }

// Takes returns the script that decides for many keys at once what Take does for one;
// see takes.lua. The limits' arguments are those of Take.
func Takes(kinds string) (script string, err error) { return scripts.compose("takes", kinds) }

// Refund returns the script that gives back a charge to limits of these kinds; see
// refund.lua.
func Refund(kinds string) (script string, err error) { return scripts.compose("refund", kinds) }

// Credit returns the script that gives back units without a receipt to limits of these
// kinds; see credit.lua.
func Credit(kinds string) (script string, err error) { return scripts.compose("credit", kinds) }

func (l *library) compose(operation, kinds string) (script string, err error) {
	if kinds == "" {
		return "", errors.New("lua: no limits: give one letter for each")
	}
	t := l.templates[operation]
	limits := make([]map[string]string, len(kinds)) // the sections of each
	count := 0                                      // of arguments
	for i := range limits {
		a := l.algorithms[kinds[i]]
		if a == nil {
			return "", fmt.Errorf("lua: no algorithm has the letter %q", kinds[i])
		}
		if limits[i], err = a.resolve(t, count); err != nil {
			return "", err
		}
		count += len(a.arguments[t.limits])
	}

	// unroll repeats a section for each limit, with its own names.
	unroll := func(section string) string {
		var b strings.Builder
		for i := range limits {
			b.WriteString(perLimit.ReplaceAllString(limits[i][section], "_"+strconv.Itoa(i+1)))
		}
		return b.String()
	}
	// each repeats a name for each limit.
	each := func(name, sep string) string {
		names := make([]string, len(limits))
		for i := range names {
			names[i] = perLimit.ReplaceAllString(name, "_"+strconv.Itoa(i+1))
		}
		return strings.Join(names, sep)
	}

	frame := sections(l.templates["frame"].text)
	frame["arguments"] = hoist(count)
	left := "math.max(" + each("left_i", ", ") + ")"
	if len(limits) == 1 { // the commonest script is the one that must be fastest
		frame["split"], left = "local s_1 = stored\n", "left_1"
	}
	reply := strings.ReplaceAll(strings.TrimSpace(unroll("reply")), "\n", ", ")
	slots := make([]string, 1+strings.Count(reply, ", ")) // behind those that are filled
	for i := range slots {
		slots[i] = fmt.Sprintf("reply[at + %d]", 1+i)
	}
	text, unread, err := place(fill(t.text, frame), t.arguments, count, argument)
	if err != nil || unread != "" {
		return "", cannotResolve(operation+".lua", operation, unread, err)
	}
	all := strings.NewReplacer(
		"segments_all", each("([^;]*)", ";"),
		"s_all", each("s_i", ", "),
		"fits_all", each("fits_i", " and "),
		"text_all", each("text_i", " .. ';' .. "),
		"left_all", left,
		"most_all", each("most_i", ", "),
		"times_all", each("times_i", ", "),
		"verdicts_all", each("fits_i", ", "),
		"reply_all", reply, "slots_all", strings.Join(slots, ", "), "width_all", strconv.Itoa(len(slots)),
	)
	own := map[string]string{}
	for _, m := range stands.FindAllStringSubmatch(text, -1) {
		own[m[2]] = unroll(m[2])
	}
	return fill(all.Replace(text), own), nil
}

// fill puts sections, indented, where lines of a template stand for them. A line that
// stands for none of them stays.
func fill(text string, sections map[string]string) string {
	return stands.ReplaceAllStringFunc(text, func(line string) string {
		m := stands.FindStringSubmatch(line)
		section, ok := sections[m[2]]
		if !ok {
			return line
		}
		return m[1] + strings.ReplaceAll(strings.TrimRight(section, "\n"), "\n", "\n"+m[1]) + "\n"
	})
}

// hoist reads the limits' arguments as numbers, once, for a script that needs them again
// and again.
func hoist(count int) string {
	names, values := make([]string, count), make([]string, count)
	for k := range count {
		names[k], values[k] = fmt.Sprintf(hoisted, 1+k), fmt.Sprintf("(ARGV[%d] or 0) + 0", 1+k)
	}
	return "local " + strings.Join(names, ", ") + " = " + strings.Join(values, ", ") + "\n"
}

// The patterns of an argument, and of one of a limit where it is read once for all keys.
const (
	argument = "ARGV[%d]"
	hoisted  = "arg%d"
)

// resolve returns the sections that a template asks for, with each argument in its place
// behind the first ones. It is an error if a section reads an argument that is not
// declared, or if none reads one that is.
func (a *algorithm) resolve(t template, first int) (out map[string]string, err error) {
	names, ok := a.arguments[t.limits]
	if !ok {
		return nil, fmt.Errorf("lua: %s does not declare its arguments of %s; add a line %q to the header",
			a.file, t.limits, "-- Arguments of "+t.limits+": ...")
	}
	wanted := []string{"reply"} // which stands within a line
	for _, m := range stands.FindAllStringSubmatch(t.text, -1) {
		wanted = append(wanted, m[2])
	}
	form := argument
	if slices.Contains(wanted, "arguments") {
		form = hoisted
	}
	var all strings.Builder
	out = make(map[string]string, len(wanted))
	for _, section := range wanted {
		text := a.sections[section]
		if form == hoisted {
			text = asNumber.ReplaceAllString(text, "ARG.$1$2")
		}
		if a.zeros != nil {
			text = a.zeros.ReplaceAllString(text, "0")
		}
		all.WriteString(text)
		if out[section], _, err = place(text, names, first, form); err != nil {
			return nil, cannotResolve(a.file, t.limits, "", err)
		}
	}
	if _, unread, _ := place(all.String(), names, first, form); unread != "" {
		return nil, cannotResolve(a.file, t.limits, unread, nil)
	}
	return out, nil
}

// place puts the argument first+k, counted from 1, in the place of the k-th name. A name
// that ends in "..." is a list, and its i-th is read as ARG.name[i]; TEXT.name is always what
// was sent, never a number. unread is a name that
// the text does not read, and the error says which one is not declared.
func place(text string, names []string, first int, form string) (placed, unread string, err error) {
	read := map[string]bool{}
	text = arguments.ReplaceAllStringFunc(text, func(arg string) string {
		m := arguments.FindStringSubmatch(arg)
		name, form := m[2], form
		if m[3] != "" {
			name += "..."
		}
		if m[1] == "TEXT" {
			form = argument
		}
		k := slices.Index(names, name)
		if k < 0 {
			err = fmt.Errorf("reads %s, which is not among its arguments %q", arg, names)
		}
		read[name] = true
		if m[3] != "" {
			return fmt.Sprintf("ARGV[%d + %s]", first+k, m[3])
		}
		return fmt.Sprintf(form, first+k+1)
	})
	for _, name := range names {
		if !read[name] {
			unread = name
		}
	}
	return text, unread, err
}

// cannotResolve is the error of a file whose text and header disagree.
func cannotResolve(file, operation, unread string, err error) error {
	if err == nil {
		err = fmt.Errorf("declares the argument %s and does not read it", unread)
	}
	return fmt.Errorf("lua: %s, in the script %s, %w", file, operation, err)
}
