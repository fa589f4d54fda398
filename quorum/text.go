package quorum

import (
	"cmp"
	"iter"
	"strconv"
	"unicode/utf8"
)

// The text of a coterie, for people and for errors, is its quorums in braces, as the
// papers write it:
//
//	{1,2},{1,3},{2,3}
//	{ams,fra},{ams,"new york"},{fra,"new york"}
//
// A site is written as its own text if that is letters, digits and any of -_.:/@+
// and as a Go string otherwise. This package imports no reflection, so a site has a
// text if its type has a method String or is string, int, int64 or uint64. Errors
// name other sites by their places.

// shown is how many quorums String writes out.
const shown = 32

// String returns the text of c; of more than 32 quorums, the first ones and how
// many there are. If the type of the sites has no text, it is only their number.
func (c Coterie[T]) String() string {
	n := c.Len()
	b, ok := appendSets(nil, func(yield func([]T) bool) {
		left := shown
		for q := range c.Quorums() {
			if left--; left < 0 || !yield(q) {
				return
			}
		}
	})
	switch {
	case !ok:
		return strconv.Itoa(n) + " quorums"
	case n == maxInt:
		b = append(b, ",... (more quorums than an int can count)"...)
	case n > shown:
		b = append(b, ",... ("...)
		b = strconv.AppendInt(b, int64(n), 10)
		b = append(b, " quorums)"...)
	}
	return string(b)
}

// appendSets appends the text of sets, and reports whether their sites have one.
func appendSets[T cmp.Ordered](b []byte, sets iter.Seq[[]T]) ([]byte, bool) {
	before := len(b)
	for s := range sets {
		if len(b) > before {
			b = append(b, ',')
		}
		b = append(b, '{')
		for i, site := range s {
			if i > 0 {
				b = append(b, ',')
			}
			text, ok := siteText(site)
			if !ok {
				return b, false
			}
			b = append(b, text...)
		}
		b = append(b, '}')
	}
	return b, true
}

// named returns "site 3 (ams)", or without the text if there is none.
func named[T cmp.Ordered](what string, place int, site T) string {
	what += " " + strconv.Itoa(place)
	if text, ok := siteText(site); ok {
		what += " (" + text + ")"
	}
	return what
}

// siteText returns the text of a site, and false if its type has none.
func siteText[T cmp.Ordered](site T) (text string, ok bool) {
	switch s := any(site).(type) {
	case interface{ String() string }:
		text = s.String()
	case string:
		text = s
	case int:
		text = strconv.Itoa(s)
	case int64:
		text = strconv.FormatInt(s, 10)
	case uint64:
		text = strconv.FormatUint(s, 10)
	default:
		return "", false
	}
	for _, c := range text {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '-' <= c && c <= ':', c == '_', c == '@', c == '+':
		case c < utf8.RuneSelf, c == utf8.RuneError:
			return strconv.Quote(text), true
		}
	}
	if text == "" {
		return `""`, true
	}
	return text, true
}
