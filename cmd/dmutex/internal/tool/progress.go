package tool

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

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
