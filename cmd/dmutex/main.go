// Command dmutex shows, checks and measures distributed mutual exclusion.
//
//	dmutex demo      processes, a real network, one account, and no money lost;
//	                 demo philosophers: five forks, and no philosopher starves
//	dmutex check     a small group, and everything that can happen to it
//	dmutex sim       a group of any size in virtual time, measured
//	dmutex step      the same group, stepped by hand on a page
//	dmutex run       a command under a lock, one at a time on one machine or many
//	dmutex serve     a member of a group, for clients
//	dmutex evict     a member whose machine is gone for good
//	dmutex trace     the traces of nodes, drawn and replayed
//	dmutex quorum    coteries: built, checked and compared
//	dmutex completion  for bash, zsh or fish
//	dmutex help      what a command does, and its flags; the same as --help
//	dmutex version   which build this is; the same as --version
//
// A build with -tags nats can also use NATS: demo --link nats, run --store
// nats://HOST:PORT/BUCKET, and serve --group nats://HOST:PORT/NAME; one with -tags postgres,
// run --store and serve --group postgres://USER@HOST/DATABASE, and so on for etcd and redis.
//
// Exit status: 0 all is well; 1 a check failed; 2 the command line is wrong;
// 3 the command could not be completed. run passes on the status of its command,
// see run --help.
package main

import (
	"maps"
	"os"

	"github.com/alecthomas/kong"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/base"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/check"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/demo"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/evict"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/quorum"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/run"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/serve"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/sim"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/step"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/trace"
)

type commands struct {
	Demo  demo.Cmd  `cmd:"" help:"Show the locks at work on processes of the operating system."`
	Check check.Cmd `cmd:"" help:"Run a small group through everything that can happen to it, and show the shortest run that goes wrong."`
	Sim   sim.Cmd   `cmd:"" help:"Measure algorithms in groups of any size and under any load, beside their papers' formulas."`
	Step  step.Cmd  `cmd:"" help:"Step a small group by hand on a page: deliver each message, lose it, crash a node."`
	running
	Serve  serve.Cmd  `cmd:"" help:"Run a member of a group that serves clients."`
	Evict  evict.Cmd  `cmd:"" help:"Evict a member whose machine is gone for good: the others go on without it."`
	Trace  trace.Cmd  `cmd:"" help:"Draw the traces of nodes, or replay them."`
	Quorum quorum.Cmd `cmd:"" help:"Build, check and compare coteries."`

	Completion tool.Completion `cmd:"" help:"Print what makes a shell complete command lines of this tool."`
	Manual     tool.Help       `cmd:"" name:"help" help:"Print the help of a command: dmutex help run is dmutex run --help."`
	Build      tool.Version    `cmd:"" name:"version" help:"Print which build this is."`
}

// running is the grammar of run alone. Programs call run often, and to build the grammar of all
// commands takes milliseconds.
type running struct {
	Run     run.Cmd          `cmd:"" help:"Run a command under a lock."`
	Version kong.VersionFlag `help:"Print which build this is."`
}

// Help is the text of --help.
func (commands) Help() string {
	return `Distributed mutual exclusion with no lock server.

Exit status: 0 all is well; 1 a check failed; 2 the command line is wrong; 3 the command could not be completed. run passes on the status of its command.`
}

func init() { maps.Copy(tool.Bases, base.All) }

func main() {
	con := &tool.Console{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	tool.Exit(tool.Main(grammarOf(os.Args[1:]), os.Args[1:], con), con)
}

func grammarOf(args []string) any {
	if len(args) > 0 && args[0] == "run" {
		return new(running)
	}
	return new(commands)
}
