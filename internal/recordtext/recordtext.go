// Package recordtext has what the texts of the records in stores have in common.
package recordtext

import (
	"slices"
	"strconv"
)

// Word takes the next word off a text, or what is quoted, and the blank or the newline behind it. What is
// misread is found by comparing the text with that of the result.
func Word(text *string) (word string) {
	quoted, err := strconv.QuotedPrefix(*text)
	end := len(quoted)
	if word, _ = strconv.Unquote(quoted); err != nil {
		for end < len(*text) && (*text)[end] != ' ' && (*text)[end] != '\n' {
			end++
		}
		word = (*text)[:end]
	}
	*text = (*text)[min(end+1, len(*text)):]
	return word
}

// IsLife reports whether a store may name a life so, or whether it is empty.
func IsLife(name string) bool {
	return len(name) <= MaxLife && !slices.ContainsFunc([]byte(name), func(c byte) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
}

// MaxLife is the length of the longest name of a life.
const MaxLife = 64
