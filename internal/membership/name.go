package membership

import (
	"slices"
	"strconv"
	"unicode/utf8"
)

// MaxName is the length of the longest name of a process, in bytes.
const MaxName = 64

// IsName reports whether people may be shown the name of a process, which may come from a
// hostile one: it is printable, on one line, and has at most 64 bytes. It may be empty.
func IsName(name string) bool {
	return len(name) <= MaxName && !slices.ContainsFunc([]rune(name), func(c rune) bool { return !strconv.IsPrint(c) || c == utf8.RuneError })
}
