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
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dmutex/dmutex/quorum"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
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

// Died is a command's result when a signal has ended what it ran. The tool dies of it, too: a shell then ends a loop,
// and a supervisor sees what happened.
type Died struct {
	Signal syscall.Signal
	Group  bool // our process group has to get it as well, since the terminal has sent it to the command alone
}

func (d Died) Error() string { return d.Signal.String() }

// Console is where a command reads and writes. As a writer it writes to Out, and Main reports the
// first error of that, so a command need not.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	Name     string // of the program, if it is not dmutex
	failed   error
	died     Died
}

func (c *Console) Write(b []byte) (int, error) {
	n, err := c.Out.Write(b)
	c.failed = cmp.Or(c.failed, err)
	return n, err
}

// Program is the name of the program, with which its errors begin.
func (c *Console) Program() string { return cmp.Or(c.Name, "dmutex") }

// Vars are what the tags of the grammars refer to.
func Vars() kong.Vars {
	return kong.Vars{
		"algorithms": catalog.Names(), "one": catalog.Default("ricart"), "several": catalog.Default("all"),
		"constructions": ConstructionNames(), "version": version(),
	}
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
		kong.Name(con.Program()),
		Vars(),
		kong.Writers(con.Out, con.Err),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.KindMapper(reflect.String, kong.MapperFunc(func(line *kong.DecodeContext, flag reflect.Value) error {
			text, err := verbatim(line)
			flag.SetString(text)
			return err
		})),
		kong.WithBeforeReset(lineWins),
		kong.WithBeforeApply(filled),
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
	case errors.As(err, new(*kong.ParseError)): // of the command after help
		return wrongLine(con, err)
	case errors.As(err, &its):
		return int(its)
	case errors.As(err, &con.died):
		return 128 + int(con.died.Signal)
	default:
		fmt.Fprintf(con.Err, "%s: %v\n", con.Program(), err)
		return StatusIncomplete
	}
}

// wrongLine says what is wrong with a command line, and which help to read: that
// of the most specific command that was recognized.
func wrongLine(con *Console, err error) (status int) {
	status = StatusUsage
	words := []string{con.Program()}
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
	fmt.Fprintf(con.Err, "%s: %v\nTry: %s --help\n", con.Program(), err, strings.Join(words, " "))
	return status
}

// version is what the Go tool wrote into the binary.
func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "dmutex without module information"
	}
	return fmt.Sprint("dmutex ", build.Main.Version, " ", build.GoVersion)
}

// verbatim returns the text of a flag or an argument byte by byte. Kong's own mappers pass it through JSON, which
// replaces what is not UTF-8: another file would be meant, and another lock.
func verbatim(line *kong.DecodeContext) (string, error) {
	t, err := line.Scan.PopValue("string")
	return t.String(), err
}

// lineWins leaves the variables of a flag on the command line, and of those that it excludes, unread.
func lineWins(line *kong.Context) error {
	for _, on := range line.Path {
		for _, f := range line.Flags() {
			if on.Flag != nil && (f == on.Flag || slices.ContainsFunc(f.Xor, func(group string) bool { return slices.Contains(on.Flag.Xor, group) })) {
				f.Tag.Envs = nil
			}
		}
	}
	return nil
}

// filled refuses an empty text, such as that of a script whose own variable is missing: without it the flag
// would mean something else, as if --allow were not there.
func filled(line *kong.Context) error {
	for _, f := range line.Flags() {
		if text, ok := line.FlagValue(f).(string); ok && f.Set && !f.Required && text == "" {
			without := "leave it out"
			if len(f.Envs) > 0 {
				without = "set neither it nor " + f.Envs[0]
			}
			return fmt.Errorf("%s: --%s is empty: give --%[2]s=%s, or %s", line.Selected().Path(), f.Name, f.FormatPlaceHolder(), without)
		}
	}
	return nil
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
		value := reflect.Indirect(reflect.ValueOf(line.FlagValue(f)))
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

// Help is dmutex help.
type Help struct {
	Command []string `arg:"" optional:"" help:"The command, such as run or trace draw."`
}

// Run prints the help of a command, or of the tool.
func (h *Help) Run(app *kong.Kong) error {
	_, err := app.Parse(append(h.Command, "--help"))
	return err
}

// Version is dmutex version.
type Version struct{}

// Run prints which build this is.
func (*Version) Run(con *Console) error {
	fmt.Fprintln(con, version())
	return nil
}

// Completion is dmutex completion.
type Completion struct {
	Shell string   `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
	Words []string `arg:"" optional:"" passthrough:"" help:"What bash adds when it asks."`
}

// With these a shell asks this command, with the line in COMP_LINE, what may stand at its end.
var completions = map[string]string{
	"bash": `complete -o default -C "dmutex completion bash" dmutex`,
	"zsh":  `_dmutex() { local o=(${(f)"$(COMP_LINE="${words[1,CURRENT]}" dmutex completion zsh)"}); compadd -a o || _files }; compdef _dmutex dmutex`,
	"fish": `complete -c dmutex -a '(COMP_LINE=(commandline -cp) dmutex completion fish)'`,
}

// Run prints the script, or what may stand at the end of the line: nothing for a file.
func (c *Completion) Run(con *Console, app *kong.Context) error {
	line, asked := os.LookupEnv("COMP_LINE")
	if !asked {
		fmt.Fprintln(con, completions[c.Shell])
		return nil
	}
	at := strings.LastIndexAny(line, " =") + 1
	shown := line[strings.LastIndexByte(line, ' ')+1 : at] // a flag, if its value is in the same word
	if c.Shell == "bash" {                                 // which breaks words at =
		shown = ""
	}
	node, flags := app.Model.Node, app.Model.Flags
	var flag *kong.Flag // its value is next
	for i, word := range strings.FieldsFunc(line[:at], func(r rune) bool { return r == ' ' || r == '=' }) {
		child := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word })
		switch {
		case i == 0: // the name of the tool
		case flag != nil:
			flag = nil
		case strings.HasPrefix(word, "-") && word != "--":
			for _, f := range flags {
				if !f.IsBool() && (word == "--"+f.Name || word == "-"+string(f.Short)) {
					flag = f
				}
			}
		case child < 0:
			return nil
		default:
			node = node.Children[child]
			flags = slices.Concat(cmp.Or(node.DefaultCmd, node).AllFlags(true)...)
		}
	}
	var options []string
	switch {
	case flag != nil && flag.Name == "algorithm":
		options = strings.Split(catalog.Names(), ", ")
	case flag != nil:
		options = flag.EnumSlice()
	case strings.HasPrefix(line[at:], "-"):
		for _, f := range flags {
			options = append(options, "--"+f.Name)
		}
	default:
		for _, n := range node.Children {
			if !n.Hidden {
				options = append(options, n.Name)
			}
		}
	}
	for _, o := range options {
		if o != "" && strings.HasPrefix(o, line[at:]) {
			fmt.Fprintln(con, shown+o)
		}
	}
	return nil
}
