package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress tells a person that something is going on: a moving bar on a
// terminal, a line now and then elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	total    int    // of one run
	unit     string // what is counted, such as "deposits"
	name     string
	told     time.Time
}

func newProgress(out io.Writer, total int) *progress {
	p := &progress{out: out, total: total}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// tellEvery is how often progress is told where there is no terminal.
var tellEvery = 5 * time.Second

const (
	barWidth  = 40
	clearLine = "\r\x1b[K"
)

// say writes a line.
func (p *progress) say(format string, args ...any) {
	p.clear()
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *progress) begin(name string) {
	p.name, p.told = name, time.Now()
	if p.terminal {
		p.at(0)
	}
}

// at tells how much of the present run has been done.
func (p *progress) at(made int) {
	if p.terminal {
		bar := strings.Repeat("#", barWidth*made/p.total)
		fmt.Fprintf(p.out, "%s%-12s [%-*s] %d of %d %s", clearLine, p.name, barWidth, bar, made, p.total, p.unit)
	} else if time.Since(p.told) >= tellEvery {
		p.told = time.Now()
		p.say("%-12s %d of %d %s", p.name, made, p.total, p.unit)
	}
}

func (p *progress) end(took time.Duration) {
	p.say("%-12s %d %s in %.1f s", p.name, p.total, p.unit, took.Seconds())
}

// clear takes the bar away.
func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.out, clearLine)
	}
}
