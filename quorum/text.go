package quorum

import (
	"cmp"
	"iter"
	"math"
	"strconv"
	"unicode/utf8"
)

// shown is how many quorums String writes out.
const shown = 32

// String returns the quorums of c, such as {ams,fra},{ams,"new york"},{fra,"new york"}. If
// there are more than 32, it returns the first 32 and the number of all. A site is written as
// its own text if that has only letters, digits, -_.:/@+ and characters beyond ASCII, otherwise
// as a Go string. It has a text if its type has a method String or is string, int, int64 or
// uint64. For other sites String returns only the number of quorums.
func (c Coterie[T]) String() string {
	n := c.Len()
	all := strconv.Itoa(n) + " quorums"
	if n == math.MaxInt {
		all = "more quorums than an int can count"
	}
	if text := setsText(c.Quorums(), all); text != "" || n == 0 {
		return text
	}
	return all
}

// setsText returns the text of sets. It writes out the first few, and if there are more, all says
// how many. It returns "" if there are none, or their sites have no text.
func setsText[T cmp.Ordered](sets iter.Seq[[]T], all string) string {
	var b []byte
	left := shown
	for s := range sets {
		if left--; left < 0 {
			return string(append(b, ",... ("+all+")"...))
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		for i, site := range s {
			text := siteText(site)
			if text == "" {
				return ""
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, text...)
		}
		b = append(b, '}')
	}
	return string(b)
}

// named returns "site 3 (ams)", or without the text if there is none.
func named[T cmp.Ordered](place int, site T) string {
	name := "site " + strconv.Itoa(place)
	if text := siteText(site); text != "" {
		name += " (" + text + ")"
	}
	return name
}

// siteText returns the text of a site, or "" if its type has none.
func siteText[T cmp.Ordered](site T) (text string) {
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
		return ""
	}
	for _, c := range text {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '-' <= c && c <= ':', c == '_', c == '@', c == '+':
		case c < utf8.RuneSelf, c == utf8.RuneError:
			return strconv.Quote(text)
		}
	}
	if text == "" {
		return `""`
	}
	return text
}
