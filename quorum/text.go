package quorum

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The text of a coterie is its quorums in braces, as the papers write it:
//
//	{1,2},{1,3},{2,3}
//	{ams,fra},{ams,"new york"},{fra,"new york"}
//
// White space is free, and so is the comma between quorums. A site is written as
// its own text if that is letters, digits and any of -_.:/@+ and as a Go string
// otherwise.
//
// The text of a site is found without reflection, which this package does not
// import: the methods AppendText, MarshalText and String are asked for, in this
// order, and the types that Go predeclares (string, int, ...) write themselves.
// To be read again, a type of your own needs UnmarshalText. A type that has none
// of these is an error, never a wrong text; [Coterie.Slices] serves it all the
// same.

// Slices returns all quorums: the plain form, for encoders of every kind (JSON,
// msgpack) and with any type of site; [New] turns it back. It gives up with
// ErrTooLarge if there are more than 2^20 quorums.
func (c Coterie[T]) Slices() ([][]T, error) {
	if n := c.Len(); n > maxListed {
		return nil, tooMany(n)
	}
	return slices.Collect(c.Quorums()), nil
}

// MarshalText returns the text of c, such as {1,2},{1,3},{2,3}. JSON, msgpack
// and most other encoders take it from here. The errors: ErrTooLarge if there are
// more than 2^20 quorums, ErrSite if the type of the sites has no text, ErrEmpty
// for the zero Coterie.
func (c Coterie[T]) MarshalText() ([]byte, error) { return c.AppendText(nil) }

// AppendText is [Coterie.MarshalText] that appends to b.
func (c Coterie[T]) AppendText(b []byte) ([]byte, error) {
	n := c.Len()
	switch {
	case n == 0:
		return b, refuse(ErrEmpty, "the zero Coterie has no text; make one with New or a builder")
	case n > maxListed:
		return b, tooMany(n)
	}
	return appendSets(b, c.Quorums())
}

// UnmarshalText sets c to the coterie of a text, which must obey the laws and be no
// larger than [New] takes. What cannot be read is ErrSite. After an error c is unchanged.
func (c *Coterie[T]) UnmarshalText(text []byte) error {
	quorums, err := readSets[T](text)
	if err != nil {
		return err
	}
	read, err := New(quorums...)
	if err != nil {
		return err
	}
	*c = read
	return nil
}

// shown is how many quorums String writes out.
const shown = 32

// String returns the text of c; of more than 32 quorums, the first ones and how
// many there are.
func (c Coterie[T]) String() string {
	n := c.Len()
	b, err := appendSets(nil, func(yield func([]T) bool) {
		left := shown
		for q := range c.Quorums() {
			if left--; left < 0 || !yield(q) {
				return
			}
		}
	})
	switch {
	case err != nil:
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

func appendSets[T cmp.Ordered](b []byte, sets iter.Seq[[]T]) ([]byte, error) {
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
			text, err := siteText(site)
			if err != nil {
				return b, err
			}
			b = append(b, text...)
		}
		b = append(b, '}')
	}
	return b, nil
}

// named returns "site 3 (ams)", or without the text if there is none.
func named[T cmp.Ordered](what string, place int, site T) string {
	what += " " + strconv.Itoa(place)
	text, err := siteText(site)
	if err != nil {
		return what
	}
	return what + " (" + text + ")"
}

func plain(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c >= utf8.RuneSelf:
		return true
	}
	switch c {
	case '-', '_', '.', ':', '/', '@', '+':
		return true
	}
	return false
}

func siteText[T cmp.Ordered](site T) (string, error) {
	text, err := rawText(site)
	if err != nil {
		return "", err
	}
	bare := text != "" && utf8.ValidString(text)
	for i := range len(text) {
		bare = bare && plain(text[i])
	}
	if !bare {
		return strconv.Quote(text), nil
	}
	return text, nil
}

func rawText(site any) (string, error) {
	switch s := site.(type) {
	case interface{ AppendText([]byte) ([]byte, error) }:
		text, err := s.AppendText(nil)
		return string(text), err
	case interface{ MarshalText() ([]byte, error) }:
		text, err := s.MarshalText()
		return string(text), err
	case interface{ String() string }:
		return s.String(), nil
	case string:
		return s, nil
	case int:
		return strconv.Itoa(s), nil
	case int8:
		return strconv.FormatInt(int64(s), 10), nil
	case int16:
		return strconv.FormatInt(int64(s), 10), nil
	case int32:
		return strconv.FormatInt(int64(s), 10), nil
	case int64:
		return strconv.FormatInt(s, 10), nil
	case uint:
		return strconv.FormatUint(uint64(s), 10), nil
	case uint8:
		return strconv.FormatUint(uint64(s), 10), nil
	case uint16:
		return strconv.FormatUint(uint64(s), 10), nil
	case uint32:
		return strconv.FormatUint(uint64(s), 10), nil
	case uint64:
		return strconv.FormatUint(s, 10), nil
	case uintptr:
		return strconv.FormatUint(uint64(s), 10), nil
	case float32:
		return strconv.FormatFloat(float64(s), 'g', -1, 32), nil
	case float64:
		return strconv.FormatFloat(s, 'g', -1, 64), nil
	}
	return "", refuse(ErrSite, "its type has no text; give it a method MarshalText, or use Slices")
}

// readSite sets *site, a pointer to a site, to what text says.
func readSite(site any, text string) error {
	var (
		i   int64
		u   uint64
		f   float64
		err error
	)
	switch s := site.(type) {
	case interface{ UnmarshalText([]byte) error }:
		err = s.UnmarshalText([]byte(text))
	case *string:
		*s = text
	case *int:
		i, err = strconv.ParseInt(text, 10, strconv.IntSize)
		*s = int(i)
	case *int8:
		i, err = strconv.ParseInt(text, 10, 8)
		*s = int8(i)
	case *int16:
		i, err = strconv.ParseInt(text, 10, 16)
		*s = int16(i)
	case *int32:
		i, err = strconv.ParseInt(text, 10, 32)
		*s = int32(i)
	case *int64:
		*s, err = strconv.ParseInt(text, 10, 64)
	case *uint:
		u, err = strconv.ParseUint(text, 10, strconv.IntSize)
		*s = uint(u)
	case *uint8:
		u, err = strconv.ParseUint(text, 10, 8)
		*s = uint8(u)
	case *uint16:
		u, err = strconv.ParseUint(text, 10, 16)
		*s = uint16(u)
	case *uint32:
		u, err = strconv.ParseUint(text, 10, 32)
		*s = uint32(u)
	case *uint64:
		*s, err = strconv.ParseUint(text, 10, 64)
	case *uintptr:
		u, err = strconv.ParseUint(text, 10, 64)
		*s = uintptr(u)
	case *float32:
		f, err = strconv.ParseFloat(text, 32)
		*s = float32(f)
	case *float64:
		*s, err = strconv.ParseFloat(text, 64)
	default:
		return refuse(ErrSite, "its type cannot be read from text; give it a method UnmarshalText, or use New")
	}
	if err != nil {
		return refuse(ErrSite, strconv.Quote(text)+" cannot be read ("+err.Error()+"); write it as the sites of this coterie are written")
	}
	return nil
}

// readSets reads what appendSets writes.
func readSets[T cmp.Ordered](text []byte) ([][]T, error) {
	r := reader{text: string(text)}
	quorums := [][]T{}
	for r.next(); r.at < len(text); r.next() {
		if r.next() == ',' && len(quorums) > 0 {
			r.at++
		}
		if r.next() != '{' {
			return nil, r.expected("{")
		}
		r.at++
		quorum := []T{}
		for r.next() != '}' {
			if len(quorum) > 0 {
				if r.next() != ',' {
					return nil, r.expected(", or }")
				}
				r.at++
			}
			word, err := r.word()
			if err != nil {
				return nil, err
			}
			var site T
			if err := readSite(&site, word); err != nil {
				return nil, err
			}
			quorum = append(quorum, site)
		}
		r.at++
		quorums = append(quorums, quorum)
	}
	return quorums, nil
}

type reader struct {
	text string
	at   int
}

// next skips white space and returns the byte that follows, 0 at the end.
func (r *reader) next() byte {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
	return 0
}

func (r *reader) expected(what string) error {
	return refuse(ErrSite, "expected "+what+" at byte "+strconv.Itoa(r.at)+"; write {a,b},{a,c}")
}

// word reads a bare or quoted site.
func (r *reader) word() (string, error) {
	if r.next() == '"' {
		quoted, err := strconv.QuotedPrefix(r.text[r.at:])
		if err != nil {
			return "", r.expected("a closing quotation mark")
		}
		r.at += len(quoted)
		return strconv.Unquote(quoted)
	}
	start := r.at
	for r.at < len(r.text) && plain(r.text[r.at]) {
		r.at++
	}
	if r.at == start {
		return "", r.expected("a site")
	}
	return r.text[start:r.at], nil
}
