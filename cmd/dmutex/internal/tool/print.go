package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dmutex/dmutex"
)

// PrintJSON prints a result in a form that people can read too.
func PrintJSON(w io.Writer, result any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(result)
}

// Phrases are said one after the other.
type Phrases []string

// Add adds a phrase if it is so.
func (p *Phrases) Add(so bool, format string, args ...any) {
	if so {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
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
func Tabulate(w io.Writer, headings []Heading, rows [][]string) {
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
		writeLine(w, titles)
	}
	for i, row := range slices.Concat([][]string{heads}, rows) {
		line := []string{fmt.Sprintf("%-*s", widths[0], row[0])}
		for i, cell := range row[1:] {
			line = append(line, fmt.Sprintf("%*s", widths[i+1], cell))
		}
		writeLine(w, line)
		if titled && i == 0 {
			writeLine(w, rules)
		}
	}
}

const gap = "  " // between two columns

func writeLine(w io.Writer, parts []string) {
	fmt.Fprintln(w, strings.TrimRight(strings.Join(parts, gap), " "))
}

// Progress shows that a command is at work: a moving bar on a terminal, and
// elsewhere a line from time to time.
type Progress struct {
	out      io.Writer
	terminal bool
	total    int    // of one run
	unit     string // what is counted, such as "deposits"
	name     string
	told     time.Time
}

// NewProgress shows progress on out. Each run counts up to total.
func NewProgress(out io.Writer, total int, unit string) *Progress {
	p := &Progress{out: out, total: total, unit: unit, told: time.Now()}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// TellEvery is the time between two lines where there is no terminal. Tests set it.
var TellEvery = 5 * time.Second

const (
	barWidth  = 40
	clearLine = "\r\x1b[K"
)

// Say writes a line.
func (p *Progress) Say(format string, args ...any) {
	p.Clear()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Begin begins a run.
func (p *Progress) Begin(name string) {
	p.name, p.told = name, time.Now()
	if p.terminal {
		p.At(0)
	}
}

// At shows how much of the present run has been done.
func (p *Progress) At(made int) {
	count := fmt.Sprintf("%d of %d %s", made, p.total, p.unit)
	if p.terminal {
		bar := strings.Repeat("#", barWidth*made/p.total)
		p.Live("%-12s [%-*s] %s", p.name, barWidth, bar, count)
	} else {
		p.Live("%-12s %s", p.name, count)
	}
}

// End ends a run.
func (p *Progress) End(took time.Duration) {
	p.Say("%-12s %d %s in %.1f s", p.name, p.total, p.unit, took.Seconds())
}

// Live shows a text: on a terminal always, in place of the one before; elsewhere
// from time to time.
func (p *Progress) Live(format string, args ...any) {
	if p.terminal {
		fmt.Fprintf(p.out, clearLine+format, args...)
	} else if time.Since(p.told) >= TellEvery {
		p.told = time.Now()
		p.Say(format, args...)
	}
}

// Clear removes the bar.
func (p *Progress) Clear() {
	if p.terminal {
		fmt.Fprint(p.out, clearLine)
	}
}

// TraceDir makes a directory for the traces of one run, in which there must be
// no files yet.
func TraceDir(elements ...string) (string, error) {
	dir := filepath.Join(elements...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	old, err := os.ReadDir(dir)
	if err == nil && len(old) > 0 {
		err = fmt.Errorf("%s is not empty: traces of different runs do not mix, choose another directory", dir)
	}
	return dir, err
}

// CreateTrace creates the file for a trace of a node. If the node was started before, it is
// another one.
func CreateTrace(dir string, id dmutex.NodeID) (*os.File, error) {
	name := fmt.Sprintf("%d.trace", id)
	for n := 2; ; n++ {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
		name = fmt.Sprintf("%d-%d.trace", id, n)
	}
}
