package tool

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Heading stands over one or more columns of a table.
type Heading struct {
	Title   string
	Columns []string
}

// gap is between two columns.
const gap = "  "

// Tabulate writes a table: two lines of headings, a rule, the rows. The first
// column is written to the left, the others to the right.
func Tabulate(b *strings.Builder, headings []Heading, rows [][]string) {
	lines := make([][]string, 3+len(rows)) // a text for each heading
	first := 0
	for _, h := range headings {
		cells := [][]string{h.Columns}
		for _, row := range rows {
			cells = append(cells, row[first:first+len(h.Columns)])
		}
		body, width := align(cells, first == 0, len(h.Title))
		left := (width - len(h.Title)) / 2
		title := fmt.Sprintf("%*s%-*s", left, "", width-left, h.Title)
		for i, text := range slices.Concat([]string{title, body[0], strings.Repeat("-", width)}, body[1:]) {
			lines[i] = append(lines[i], text)
		}
		first += len(h.Columns)
	}
	for _, line := range lines {
		writeLine(b, strings.Join(line, gap))
	}
}

// Columns writes a plain table: a line of headings, the rows.
func Columns(b *strings.Builder, heads []string, rows [][]string) {
	lines, _ := align(append([][]string{heads}, rows...), true, 0)
	for _, line := range lines {
		writeLine(b, line)
	}
}

// align writes the cells of each row side by side, so that all lines have the same
// width, which is at least the one given. Of the columns the first one may be written
// to the left.
func align(rows [][]string, firstLeft bool, least int) (lines []string, width int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	width = len(gap) * (len(widths) - 1)
	for _, w := range widths {
		width += w
	}
	if width < least {
		widths[len(widths)-1] += least - width
		width = least
	}
	for _, row := range rows {
		padded := make([]string, len(row))
		for i, cell := range row {
			w := widths[i]
			if i == 0 && firstLeft {
				w = -w
			}
			padded[i] = fmt.Sprintf("%*s", w, cell)
		}
		lines = append(lines, strings.Join(padded, gap))
	}
	return lines, width
}

func writeLine(b *strings.Builder, line string) { b.WriteString(strings.TrimRight(line, " ") + "\n") }
