package tool

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// PrintJSON prints a result in a form that people can read too.
func PrintJSON(w io.Writer, result any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(result)
}

// Several counts things, in the plural if they are several.
func Several(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return Thousands(n) + " " + what
}

// Thousands writes a number with commas.
func Thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Wrap breaks a text into lines that fit a terminal.
func Wrap(text string) string {
	const width = 96
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		longer := strings.TrimPrefix(*last+" "+word, " ")
		if *last != "" && utf8.RuneCountInString(longer) > width {
			lines = append(lines, word)
		} else {
			*last = longer
		}
	}
	return strings.Join(lines, "\n")
}

// A Heading stands over one or more columns of a table.
type Heading struct {
	Title   string
	Columns []string
}

// Tabulate writes a table: the headings and the rows. If a heading has a title, the titles stand
// above the headings and a rule below. The first column is written to the left, the others to the right.
func Tabulate(b *strings.Builder, headings []Heading, rows [][]string) {
	var heads, titles, rules []string
	for _, h := range headings {
		heads = append(heads, h.Columns...)
	}
	widths := make([]int, len(heads))
	for _, row := range slices.Concat([][]string{heads}, rows) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	rest := widths
	for _, h := range headings {
		own := rest[:len(h.Columns)]
		rest = rest[len(own):]
		width := len(gap) * (len(own) - 1)
		for _, w := range own {
			width += w
		}
		more := max(0, len(h.Title)-width)
		own[len(own)-1] += more
		left := (width + more - len(h.Title)) / 2
		titles = append(titles, fmt.Sprintf("%*s%-*s", left, "", width+more-left, h.Title))
		rules = append(rules, strings.Repeat("-", width+more))
	}
	titled := slices.ContainsFunc(headings, func(h Heading) bool { return h.Title != "" })
	if titled {
		writeLine(b, titles)
	}
	for i, row := range slices.Concat([][]string{heads}, rows) {
		line := []string{fmt.Sprintf("%-*s", widths[0], row[0])}
		for i, cell := range row[1:] {
			line = append(line, fmt.Sprintf("%*s", widths[i+1], cell))
		}
		writeLine(b, line)
		if titled && i == 0 {
			writeLine(b, rules)
		}
	}
}

const gap = "  " // between two columns

func writeLine(b *strings.Builder, parts []string) {
	b.WriteString(strings.TrimRight(strings.Join(parts, gap), " ") + "\n")
}
