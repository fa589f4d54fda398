// Package names has the one rule for the name of a process: of a member, a client, or the holder in a single record.
// People read these names in errors, logs, records and pages, and nothing is decided by them.
package names

import (
	"cmp"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The rule.
const (
	Max  = 64                                   // the length of the longest name, in bytes
	Rule = "printable text of at most 64 bytes" // what Is asks for
)

// Is reports whether people may be shown the name, which may come from a hostile process. It may be empty.
func Is(name string) bool {
	return len(name) <= Max && !slices.ContainsFunc([]rune(name), func(c rune) bool { return !strconv.IsPrint(c) || c == utf8.RuneError })
}

// Of names a process that was given no name: by its host, the first 20 bytes of its program's name unless that is
// empty, and its number there. A host's name that is too long loses its middle: hosts of one domain differ at the
// beginning, and pods of one deployment at the end.
func Of(host, program string, pid int) string {
	name, tail := cmp.Or(host, "?"), "/"+strconv.Itoa(pid)
	if program != "" {
		tail = "/" + program[:min(len(program), 20)] + tail
	}
	if room := Max - len(tail); len(name) > room {
		name = name[:room/2-1] + ".." + name[len(name)-room/2+1:]
	}
	name = string(slices.DeleteFunc([]rune(name+tail), func(c rune) bool { return c == utf8.RuneError })) // a cut may have left some
	if !Is(name) || !utf8.ValidString(host+program) {
		return "process " + strconv.Itoa(pid)
	}
	return name
}
