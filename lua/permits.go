package lua

import "strings"

// Acquire returns the script that takes a permit; see acquire.lua and permits.lua.
func Acquire() string { return permitScript("acquire.lua") }

// Renew returns the script that renews permits; see renew.lua.
func Renew() string { return permitScript("renew.lua") }

// Release returns the script that gives a permit back; see release.lua.
func Release() string { return permitScript("release.lua") }

// permitScript puts the shared sections into a script.
func permitScript(name string) string {
	_, text := read(name)
	_, shared := read("permits.lua")
	sections := sections(shared)
	return stands.ReplaceAllStringFunc(text, func(line string) string {
		m := stands.FindStringSubmatch(line)
		return m[1] + strings.ReplaceAll(strings.TrimRight(sections[m[2]], "\n"), "\n", "\n"+m[1]) + "\n"
	})
}
