package lua

// Acquire returns the script that takes a permit; see acquire.lua and permits.lua.
func Acquire() string { return scripts.permits("acquire") }

// Renew returns the script that renews permits; see renew.lua.
func Renew() string { return scripts.permits("renew") }

// State returns the script that shows what is kept for a key; see state.lua.
func State() string { return scripts.permits("state") }

// Release returns the script that gives permits back; see release.lua.
func Release() string { return scripts.permits("release") }

// permits puts the sections that they share into a script.
func (l *library) permits(operation string) string { return l.alone(operation, "permits") }

// alone returns a script that decides over no limits, with the sections of other files.
func (l *library) alone(operation string, from ...string) string {
	t := l.templates[operation]
	text := t.text
	for _, file := range from {
		text = fill(text, sections(l.templates[file].text))
	}
	text, unread, err := place(text, t.arguments, 0, argument)
	if err != nil || unread != "" {
		panic(cannotResolve(operation+".lua", operation, unread, err)) // the files are embedded
	}
	return text
}
