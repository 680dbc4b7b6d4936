package lua

// Board returns the script that adds to a list of the keys that count most; see board.lua.
func Board() string { return scripts.alone("board") }
