// Package tool is what the commands of dmutex share: the command line and its
// exit statuses, the algorithms, progress, tables, and the way to NATS.
package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dmutex/dmutex/quorum"
)

// The exit statuses.
const (
	StatusOK = iota
	StatusFailed
	StatusUsage
	StatusIncomplete
)

// ErrFailed is a command's result when it was completed and a check failed. The
// command has already said what failed.
var ErrFailed = errors.New("a check failed")

// A Status is a command's result when the command chooses its own exit status
// and has already said why.
type Status int

func (s Status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Console is where a command reads and writes. As a writer it writes to Out, and Main reports the
// first error of that, so a command need not.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	failed   error
}

func (c *Console) Write(b []byte) (int, error) {
	n, err := c.Out.Write(b)
	c.failed = cmp.Or(c.failed, err)
	return n, err
}

// Main parses a command line by a grammar, runs the command, and returns the
// exit status. A command has a method Run(*Console) error, and may have a method
// UsageStatus() int for the exit status of a wrong command line.
func Main(grammar any, args []string, con *Console) (status int) {
	type exit int // --help ends in kong's Exit, which must not return
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case exit:
			status = int(reason)
		default:
			panic(reason)
		}
	}()
	parser, err := kong.New(grammar,
		kong.Name("dmutex"),
		kong.Vars{"algorithms": AlgorithmNames(), "constructions": ConstructionNames()},
		kong.Writers(con.Out, con.Err),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.WithBeforeApply(bound),
	)
	if err != nil {
		panic(err) // the grammar's tags are wrong
	}
	command, err := parser.Parse(args)
	if err != nil {
		return wrongLine(con, err)
	}
	var its Status
	err = command.Run(con)
	switch err = cmp.Or(con.failed, err); {
	case err == nil:
		return StatusOK
	case errors.Is(err, ErrFailed):
		return StatusFailed
	case errors.As(err, &its):
		return int(its)
	default:
		fmt.Fprintf(con.Err, "dmutex: %v\n", err)
		return StatusIncomplete
	}
}

// wrongLine says what is wrong with a command line, and which help to read: that
// of the most specific command that was recognized.
func wrongLine(con *Console, err error) (status int) {
	status = StatusUsage
	words := []string{"dmutex"}
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok {
		for _, p := range wrong.Context.Path {
			if p.Command == nil {
				continue
			}
			words = append(words, p.Command.Name)
			if its, ok := p.Command.Target.Addr().Interface().(interface{ UsageStatus() int }); ok {
				status = its.UsageStatus()
			}
		}
	}
	fmt.Fprintf(con.Err, "dmutex: %v\nTry: %s --help\n", err, strings.Join(words, " "))
	return status
}

// bound refuses a flag whose value is not from least to most, which are tags of the flag, as is
// its unit.
func bound(line *kong.Context) error {
	for _, f := range line.Flags() {
		least, most, unit := f.Tag.Get("least"), f.Tag.Get("most"), f.Tag.Get("unit")
		if least == "" || !f.Set {
			continue
		}
		choose := fmt.Sprintf("%s to %s%s", least, most, unit)
		if most == "" {
			most, choose = "inf", least+unit+" or more"
		}
		value := line.FlagValue(f)
		if v := number(fmt.Sprint(value)); !(v >= number(least) && v <= number(most)) { // also NaN
			return fmt.Errorf("%s: --%s=%v: choose %s", line.Selected().Path(), f.Name, value, choose)
		}
	}
	return nil
}

// number reads a number, or a time.
func number(text string) float64 {
	if d, err := time.ParseDuration(text); err == nil {
		return float64(d)
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err) // the flag is neither
	}
	return v
}

// Interruptible returns a context that SIGINT and SIGTERM cancel.
func Interruptible() (ctx context.Context, stop func()) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// ConstructionNames lists the constructions of package quorum.
func ConstructionNames() string {
	var names []string
	for _, c := range quorum.Constructions[uint64]() {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}
