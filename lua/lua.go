// Package lua holds the Redis scripts, for redisstore and other stores that decide in
// one, and nothing else: one file for each algorithm, one for each operation, and the frame that all of them share.
//
// A script is composed for the kinds of a policy's limits by unrolling each
// algorithm's sections into the operation's template. It depends on the kinds
// alone, never on a limit's numbers or on any other input, so that a server sees
// few scripts and each of them once.
package lua

import (
	"embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

//go:embed *.lua
var files embed.FS

// A line "--@ name" opens a section of a file, a line "--> name" of a template
// stands for a section.
var (
	letter   = regexp.MustCompile(`(?m)^-- Letter: (\w)$`)
	borrows  = regexp.MustCompile(`(?m)^-- Sections: (\w+)$`)
	opens    = regexp.MustCompile(`(?m)^--@ (\w+)\n`)
	stands   = regexp.MustCompile(`(?m)^( *)--> (\w+)\n`)
	argument = regexp.MustCompile(`ARGV_i\[(\d+)\]`)
	perLimit = regexp.MustCompile(`_i\b`)
)

// read returns a file's documentation, up to the first empty line, and the rest.
func read(name string) (doc, rest string) {
	text, err := files.ReadFile(name)
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

// algorithms maps the letter that a file names in its documentation to the file's
// sections, or to those of another file that it names as well.
var algorithms = func() map[byte]map[string]string {
	out := map[byte]map[string]string{}
	entries, _ := files.ReadDir(".")
	for _, e := range entries {
		doc, rest := read(e.Name())
		if m := borrows.FindStringSubmatch(doc); m != nil {
			_, rest = read(m[1] + ".lua")
		}
		if m := letter.FindStringSubmatch(doc); m != nil {
			out[m[1][0]] = sections(rest)
		}
	}
	return out
}()

// Take returns the script that decides over limits of these kinds, one letter for
// each limit: "g" is gcra. Its keys, arguments and reply are those that take.lua and
// the file of each algorithm document.
func Take(kinds string) (script string, err error) {
	return compose("take.lua", kinds)
}

// UpTo returns the script that takes as many units as limits of these kinds admit;
// see upto.lua.
func UpTo(kinds string) (script string, err error) {
	return compose("upto.lua", kinds)
}

// Refund returns the script that gives back a charge to limits of these kinds; see
// refund.lua.
func Refund(kinds string) (script string, err error) {
	return compose("refund.lua", kinds)
}

func compose(template, kinds string) (script string, err error) {
	if kinds == "" {
		return "", errors.New("lua: no limits: give one letter for each")
	}
	limits := make([]map[string]string, len(kinds))
	for i := range limits {
		if limits[i] = algorithms[kinds[i]]; limits[i] == nil {
			return "", fmt.Errorf("lua: no algorithm has the letter %q", kinds[i])
		}
	}
	_, text := read(template)
	args, first := 0, make([]int, len(kinds)) // how many arguments stand before each limit's
	for i := range limits {
		first[i] = args
		args += arguments(text, limits[i])
	}

	// unroll repeats a section for each limit, with its own names and arguments.
	unroll := func(section string) string {
		var b strings.Builder
		for i := range limits {
			s := argument.ReplaceAllStringFunc(limits[i][section], func(m string) string {
				return fmt.Sprintf("ARGV[%d]", first[i]+index(m))
			})
			b.WriteString(perLimit.ReplaceAllString(s, "_"+strconv.Itoa(i+1)))
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

	_, shared := read("frame.lua")
	frame := sections(shared)
	left := "math.max(" + each("left_i", ", ") + ")"
	if len(limits) == 1 { // the commonest script is the one that must be fastest
		frame["split"], left = "local s_1 = stored\n", "left_1"
	}
	extra := 0
	if strings.Contains(text, "ARGV_extra") { // an argument that is not a limit's
		extra = 1
	}
	text = stands.ReplaceAllStringFunc(text, func(line string) string {
		m := stands.FindStringSubmatch(line)
		section, ok := frame[m[2]]
		if !ok {
			section = unroll(m[2])
		}
		return m[1] + strings.ReplaceAll(strings.TrimRight(section, "\n"), "\n", "\n"+m[1]) + "\n"
	})
	text = strings.NewReplacer(
		"segments_all", each("([^;]*)", ";"),
		"s_all", each("s_i", ", "),
		"fits_all", each("fits_i", " and "),
		"text_all", each("text_i", " .. ';' .. "),
		"left_all", left,
		"most_all", each("most_i", ", "),
		"reply_all", strings.ReplaceAll(strings.TrimSpace(unroll("reply")), "\n", ", "),
		"ARGV_extra", fmt.Sprintf("ARGV[%d]", args+1),
		"ARGV_now", fmt.Sprintf("ARGV[%d]", args+extra+1),
	).Replace(text)
	return text, nil
}

// arguments counts the arguments of one limit that a template's sections read.
func arguments(template string, sections map[string]string) (most int) {
	for _, m := range stands.FindAllStringSubmatch(template, -1) {
		for _, arg := range argument.FindAllString(sections[m[2]], -1) {
			most = max(most, index(arg))
		}
	}
	return most
}

// index is k of "ARGV_i[k]".
func index(arg string) int {
	k, _ := strconv.Atoi(argument.FindStringSubmatch(arg)[1])
	return k
}
