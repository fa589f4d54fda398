package main

import (
	"strings"
	"unicode/utf8"
)

// A heading stands over one or more columns of a table.
type heading struct {
	title   string
	columns []string
}

// tabulate writes a table: two lines of headings, a rule, the rows. The first
// column is written to the left, the others to the right.
func tabulate(b *strings.Builder, headings []heading, rows [][]string) {
	var heads []string
	for _, h := range headings {
		heads = append(heads, h.columns...)
	}
	width := make([]int, len(heads))
	for _, line := range append([][]string{heads}, rows...) {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var titles, rules []string
	i := 0
	for _, h := range headings {
		span := gap * (len(h.columns) - 1)
		for range h.columns {
			span += width[i]
			i++
		}
		if long := len(h.title) - span; long > 0 {
			width[i-1] += long
			span += long
		}
		titles = append(titles, centre(h.title, span))
		rules = append(rules, strings.Repeat("-", span))
	}
	writeLine(b, titles)
	writeCells(b, headings, width, heads)
	writeLine(b, rules)
	for _, row := range rows {
		writeCells(b, headings, width, row)
	}
}

// gap is the number of spaces between columns.
const gap = 2

// writeCells writes one line, the cells of a heading together.
func writeCells(b *strings.Builder, headings []heading, width []int, cells []string) {
	var groups []string
	i := 0
	for _, h := range headings {
		var padded []string
		for range h.columns {
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

func centre(text string, width int) string {
	left := (width - len(text)) / 2
	return strings.Repeat(" ", left) + text + strings.Repeat(" ", width-left-len(text))
}

// wrap breaks a text into lines.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > width:
			b.WriteString("\n")
			column = 0
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
