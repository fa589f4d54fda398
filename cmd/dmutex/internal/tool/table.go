package tool

import (
	"strings"
	"unicode/utf8"
)

// A Heading stands over one or more columns of a table.
type Heading struct {
	Title   string
	Columns []string
}

// Tabulate writes a table: two lines of headings, a rule, the rows. The first
// column is written to the left, the others to the right.
func Tabulate(b *strings.Builder, headings []Heading, rows [][]string) {
	var heads []string
	for _, h := range headings {
		heads = append(heads, h.Columns...)
	}
	width := widths(append([][]string{heads}, rows...))
	var titles, rules []string
	i := 0
	for _, h := range headings {
		span := gap * (len(h.Columns) - 1)
		for range h.Columns {
			span += width[i]
			i++
		}
		if long := len(h.Title) - span; long > 0 {
			width[i-1] += long
			span += long
		}
		titles = append(titles, center(h.Title, span))
		rules = append(rules, strings.Repeat("-", span))
	}
	writeLine(b, titles)
	writeCells(b, headings, width, heads)
	writeLine(b, rules)
	for _, row := range rows {
		writeCells(b, headings, width, row)
	}
}

// Columns writes a plain table: a line of headings, the rows.
func Columns(b *strings.Builder, heads []string, rows [][]string) {
	headings := []Heading{{Columns: heads}}
	lines := append([][]string{heads}, rows...)
	width := widths(lines)
	for _, line := range lines {
		writeCells(b, headings, width, line)
	}
}

// widths returns the width of each column.
func widths(lines [][]string) []int {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	return width
}

// gap is the number of spaces between columns.
const gap = 2

// writeCells writes one line, the cells of a heading together.
func writeCells(b *strings.Builder, headings []Heading, width []int, cells []string) {
	var groups []string
	i := 0
	for _, h := range headings {
		var padded []string
		for range h.Columns {
			fill := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cells[i]))
			if i == 0 {
				padded = append(padded, cells[i]+fill)
			} else {
				padded = append(padded, fill+cells[i])
			}
			i++
		}
		groups = append(groups, strings.Join(padded, strings.Repeat(" ", gap)))
	}
	writeLine(b, groups)
}

func writeLine(b *strings.Builder, groups []string) {
	b.WriteString(strings.TrimRight(strings.Join(groups, strings.Repeat(" ", gap)), " "))
	b.WriteString("\n")
}

func center(text string, width int) string {
	left := (width - len(text)) / 2
	return strings.Repeat(" ", left) + text + strings.Repeat(" ", width-left-len(text))
}
