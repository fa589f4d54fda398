// Command dmutex shows, checks and measures distributed mutual exclusion.
//
//	dmutex demo      processes, a real network, one account, and not a cent lost;
//	                 demo philosophers: five forks, and nobody starves
//	dmutex check     a small group, and everything that can happen to it
//	dmutex sim       a group of any size in virtual time, measured
//	dmutex run       a command on every machine of a group, one at a time
//	dmutex trace     what nodes have recorded, drawn and replayed
//	dmutex quorum    coteries: built, checked and compared
//	dmutex version   which build this is
//
// Exit status: 0 all is well; 1 a check failed; 2 the command line is wrong;
// 3 the command could not be completed. That of run is what it runs has left with,
// see run --help.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

const description = `Distributed mutual exclusion with no lock server.

Exit status: 0 all is well; 1 a check failed; 2 the command line is wrong; 3 the command could not be completed. That of run is its command's.`

type cli struct {
	Demo    demos      `cmd:"" help:"Show the locks at work on processes of the operating system."`
	Check   checkCmd   `cmd:"" help:"Run a small group through everything that can happen to it, and show the shortest way to what is wrong."`
	Sim     simCmd     `cmd:"" help:"Measure algorithms in groups of any size and under any load, beside their papers' formulas."`
	Run     runCmd     `cmd:"" help:"Run a command on every machine of a group, one at a time."`
	Trace   traceCmd   `cmd:"" help:"Draw what nodes have recorded, or replay it."`
	Quorum  quorumCmd  `cmd:"" help:"Build, check and compare coteries."`
	Version versionCmd `cmd:"" help:"Print which build this is."`

	Teller      tellerCmd      `cmd:"" hidden:"" help:"One teller of the demo; started by it."`
	Philosopher philosopherCmd `cmd:"" hidden:"" help:"One philosopher of the demo; started by it."`
}

// demos are the demonstrations.
type demos struct {
	Tellers      demoCmd         `cmd:"" default:"withargs" help:"Bank tellers share one account: first with no lock, then under every algorithm. This is what demo does alone."`
	Philosophers philosophersCmd `cmd:"" help:"Dining philosophers wait for each other in a circle: for ever, and then with somebody who looks."`
}

// The exit statuses.
const (
	statusOK = iota
	statusFailed
	statusUsage
	statusIncomplete
)

// errFailed is a command's result when it was completed and a check failed.
// What failed has been said already.
var errFailed = errors.New("a check failed")

// console is where a command reads and writes.
type console struct {
	in       io.Reader
	out, err io.Writer
}

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main with everything passed in and the exit status passed out.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) (status int) {
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
	parser, err := kong.New(new(cli),
		kong.Name("dmutex"),
		kong.Description(description),
		kong.Vars{"algorithms": algorithmNames(), "constructions": constructionNames()},
		kong.ExplicitGroups(checkGroups),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
	)
	if err != nil {
		panic(err) // the tags above are wrong
	}
	command, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "dmutex: %v\nTry: dmutex --help\n", err)
		if len(args) > 0 && args[0] == "run" { // 2 may be what its command says
			return statusNoLock
		}
		return statusUsage
	}
	var its commandStatus
	switch err := command.Run(&console{stdin, stdout, stderr}); {
	case err == nil:
		return statusOK
	case errors.Is(err, errFailed):
		return statusFailed
	case errors.As(err, &its):
		return int(its)
	default:
		fmt.Fprintf(stderr, "dmutex: %v\n", err)
		return statusIncomplete
	}
}

type versionCmd struct{}

// Run prints what the Go tool wrote into the binary.
func (versionCmd) Run(con *console) error {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this binary was built without module information")
	}
	_, err := fmt.Fprintln(con.out, "dmutex", build.Main.Version, build.GoVersion)
	return err
}
