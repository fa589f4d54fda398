package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/quorum"
)

// checkCmd runs a small group through everything that can happen to it.
type checkCmd struct {
	Election string `placeholder:"ALGORITHM" help:"Explore elections instead of a lock: bully, ring or chang-roberts."`
	Deadlock string `placeholder:"MODEL" help:"Explore the detection of deadlocks instead of a lock: and, or (a wait ends with all grants, or with one), or chase (transactions that take locks, as package node detects)."`

	Nodes     int  `placeholder:"N" help:"Nodes of the group, 1 to 9. 2 if not given, or 3 for elections and deadlocks."`
	MaxStates int  `default:"10000000" help:"Stop each check after so many states; a million of them takes about 200 MB, of elections and deadlocks up to 600 MB. 0 does not stop."`
	JSON      bool `name:"json" help:"Print the result as JSON, and nothing else, on standard output."`

	Algorithm string `group:"lock" default:"all" help:"One algorithm, or all of them: ${algorithms}."`
	Requests  int    `group:"lock" default:"2" help:"Requests that each node makes in a run, 1 to 255."`
	Network   string `group:"lock" default:"fifo" help:"fifo, unordered (messages may overtake each other), duplicating (fifo, and one message of a run arrives twice), lossy (fifo, and one is lost), or such as \"unordered, 2 duplicates, channel 4\"."`
	Cancel    bool   `group:"lock" help:"Each node may also withdraw a request, once in a run and at any time."`
	Quorums   string `group:"lock" placeholder:"QUORUMS" help:"Quorums of maekawa: a construction (${constructions}) or a list such as \"{1,2},{1,3},{2,3}\". A row and a column of a square if not given."`

	Elections electionOptions `embed:"" group:"election"`
	Deadlocks deadlockOptions `embed:"" group:"deadlock"`

	network dmutextest.Network
}

// checkGroups are the flags of check that belong to what is checked. A flag of
// another group than is checked is refused.
var checkGroups = []kong.Group{
	{Key: "lock", Title: "Flags of locks:"},
	{Key: "election", Title: "Flags of --election:"},
	{Key: "deadlock", Title: "Flags of --deadlock:"},
}

// Help is the text of check --help.
func (checkCmd) Help() string {
	return `The group is made of the real machines. Every order of events that the network allows is tried, breadth first, and in ` +
		`each state it is checked that no two nodes are in the critical section, that fences rise, that nobody waits for ever, and ` +
		`that nothing is left over at the end. What is wrong is shown, below the verdicts, as the shortest script that leads to it; package dmutextest ` +
		`replays it.

The number of states multiplies with each node and request. 2 nodes and 3 requests, or 3 nodes and 1 request, take seconds.

` + electionHelp + `

` + deadlockHelp + `

Exit status: 0 if every run has been seen and is right; 1 if one is wrong; 2 if the command line is wrong; 3 if the check was ` +
		`stopped, by --max-states or Ctrl-C.`
}

// Validate refuses what could not be run.
func (c *checkCmd) Validate(line *kong.Context) error {
	given := make(map[string]bool)
	for _, p := range line.Path {
		if p.Flag != nil {
			given[p.Flag.Name] = true
		}
	}
	kind := "lock"
	switch {
	case given["election"] && given["deadlock"]:
		return errors.New("--election and --deadlock are two checks: choose one of them")
	case given["election"]:
		kind = "election"
	case given["deadlock"]:
		kind = "deadlock"
	}
	for _, f := range line.Flags() {
		switch {
		case !given[f.Name] || f.Group == nil || f.Group.Key == kind:
		case f.Group.Key == "lock":
			return fmt.Errorf("--%s is about locks: leave it or --%s out", f.Name, kind)
		default:
			return fmt.Errorf("--%s needs --%s", f.Name, f.Group.Key)
		}
	}
	if !given["nodes"] {
		c.Nodes = 3
		if kind == "lock" {
			c.Nodes = 2
		}
	}
	switch {
	case c.Nodes < 1 || c.Nodes > 9:
		return fmt.Errorf("--nodes=%d: choose 1 to 9 nodes", c.Nodes)
	case c.MaxStates < 0:
		return fmt.Errorf("--max-states=%d: choose 0 or more", c.MaxStates)
	case kind == "election":
		return c.Elections.validate(c.Election, given)
	case kind == "deadlock":
		return c.Deadlocks.validate(c.Deadlock, c.Nodes, given)
	}
	return c.validateLock()
}

// validateLock refuses what could not be run of a lock.
func (c *checkCmd) validateLock() error {
	network := map[string]string{"duplicating": "fifo, 1 duplicate", "lossy": "fifo, 1 loss"}[c.Network]
	if network == "" {
		network = c.Network
	}
	var err error
	if c.network, err = dmutextest.ParseNetwork(network); err != nil {
		return fmt.Errorf("--network=%s: choose fifo, unordered, duplicating or lossy, or write it as in \"unordered, 2 duplicates, channel 4\"", c.Network)
	}
	switch {
	case !isAlgorithm(c.Algorithm):
		return fmt.Errorf("--algorithm=%s: choose all or one of %s", c.Algorithm, algorithmNames())
	case c.Requests < 1 || c.Requests > 255:
		return fmt.Errorf("--requests=%d: choose 1 to 255", c.Requests)
	case c.Quorums != "" && c.Algorithm != "maekawa":
		return errors.New("--quorums needs --algorithm=maekawa")
	case c.Quorums != "":
		if _, err := assignQuorums(c.Quorums, c.Nodes); err != nil {
			return fmt.Errorf("--quorums=%s: %w", c.Quorums, plain(err, "--quorums=degenerate"))
		}
	}
	return nil
}

func isAlgorithm(name string) bool {
	return name == "all" || slices.ContainsFunc(algorithms, func(a algorithm) bool { return a.name == name })
}

// chosen returns the algorithms of that name, or all.
func chosen(name string) []algorithm {
	return slices.DeleteFunc(slices.Clone(algorithms), func(a algorithm) bool { return name != "all" && name != a.name })
}

// constructionNames lists what assignQuorums knows by name.
func constructionNames() string {
	var names []string
	for _, c := range quorum.Constructions[uint64]() {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// assignQuorums gives each of the nodes 1 to n a quorum: of a construction, or
// of the quorums that are listed.
func assignQuorums(spec string, n int) (a quorum.Assignment[uint64], err error) {
	var nodes []uint64
	for i := range n {
		nodes = append(nodes, uint64(i+1))
	}
	var coterie quorum.Coterie[uint64]
	known := quorum.Constructions[uint64]()
	if i := slices.IndexFunc(known, func(c quorum.Construction[uint64]) bool { return c.Name == spec }); i >= 0 {
		coterie, err = known[i].Build(nodes...)
	} else {
		err = coterie.UnmarshalText([]byte(spec))
	}
	if err != nil {
		return a, err
	}
	for _, site := range coterie.Sites() {
		if site < 1 || site > uint64(n) {
			return a, fmt.Errorf("there is no node %d among %d", site, n)
		}
	}
	return coterie.Assign(nodes...)
}

// maekawaOf is Maekawa's algorithm with these quorums.
func maekawaOf(a quorum.Assignment[uint64]) dmutex.Algorithm {
	quorums := make(map[dmutex.NodeID][]dmutex.NodeID)
	for site, members := range a.All() {
		for _, m := range members {
			quorums[dmutex.NodeID(site)] = append(quorums[dmutex.NodeID(site)], dmutex.NodeID(m))
		}
	}
	return maekawa.With(func(site dmutex.NodeID) []dmutex.NodeID { return quorums[site] })
}

// verdicts is the result as JSON.
type verdicts struct {
	OK     bool      `json:"ok"` // all are clean
	Checks []checked `json:"checks"`
}

// A checked is what came of one algorithm.
type checked struct {
	Algorithm string            `json:"algorithm"`
	Quorums   map[uint64]string `json:"quorums,omitempty"` // by node, if they were given
	Nodes     int               `json:"nodes"`
	Requests  int               `json:"requests_each"`
	Cancel    bool              `json:"cancel"`
	Network   string            `json:"network"`
	Verdict   string            `json:"verdict"`
	States    int               `json:"states"`
	Steps     int               `json:"steps"`
	Depth     int               `json:"depth"`
	Channel   int               `json:"most_in_a_channel"`
	Least     int               `json:"least_messages,omitempty"` // of a whole run; known of a clean group
	Greatest  int               `json:"greatest_messages,omitempty"`
	Dense     bool              `json:"dense_fences"` // the n-th grant had fence n
	Seconds   float64           `json:"seconds"`
	Violation *violation        `json:"violation,omitempty"`
}

// The verdicts.
const (
	clean   = "clean"
	wrong   = "violation"
	stopped = "stopped"
)

// A violation is what went wrong, and the shortest way to it.
type violation struct {
	Kind   string `json:"kind"`
	Why    string `json:"why"`
	Script string `json:"script"`
}

// Run checks, and reports.
func (c *checkCmd) Run(con *console) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case c.Election != "":
		return c.runSubject(ctx, con, c.Elections.subject(c))
	case c.Deadlock != "":
		return c.runSubject(ctx, con, c.Deadlocks.subject(c))
	}
	return c.runLocks(ctx, con)
}

// runLocks checks one lock algorithm or all, and reports.
func (c *checkCmd) runLocks(ctx context.Context, con *console) error {
	v := verdicts{OK: true, Checks: []checked{}}
	for _, a := range chosen(c.Algorithm) {
		r, err := c.check(ctx, a, newProgress(con.err, 1))
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		v.Checks = append(v.Checks, r)
		v.OK = v.OK && r.Verdict == clean
		if !c.JSON {
			if _, err := fmt.Fprint(con.out, r.text()); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	var err error
	if c.JSON {
		err = printJSON(con.out, v)
	} else {
		_, err = fmt.Fprint(con.out, v.closing(c.network))
	}
	failed, halted := v.named(wrong), v.named(stopped)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		last := v.Checks[len(v.Checks)-1]
		return fmt.Errorf("interrupted: %s stopped after %s states", last.Algorithm, thousands(last.States))
	case failed != nil:
		return errFailed
	case halted != nil:
		return fmt.Errorf("%s: stopped after %s states with nothing wrong; --max-states=0 goes to the end", strings.Join(halted, ", "), thousands(c.MaxStates))
	}
	return nil
}

// printJSON prints a result so that its scripts can be read as they are.
func printJSON(w io.Writer, result any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(result)
}

// named returns the algorithms of that verdict.
func (v verdicts) named(verdict string) (names []string) {
	for _, r := range v.Checks {
		if r.Verdict == verdict {
			names = append(names, r.Algorithm)
		}
	}
	return names
}

// closing is what stands below the verdicts: the scripts of what is wrong, and
// what it all means.
func (v verdicts) closing(network dmutextest.Network) string {
	var b strings.Builder
	narrow := false
	for _, r := range v.Checks {
		if r.Violation != nil {
			fmt.Fprintf(&b, "\n%s:\n\n%s", r.Algorithm, r.Violation.Script)
			narrow = narrow || r.Violation.Kind == dmutextest.ErrChannel.Error()
		}
	}
	failed, halted := v.named(wrong), v.named(stopped)
	said := proved
	switch {
	case failed != nil:
		said = fmt.Sprintf("%d of %d failed: %s.", len(failed), len(v.Checks), strings.Join(failed, ", "))
		if !narrow {
			said += needs(network)
		}
		if halted != nil {
			said += fmt.Sprintf(" Stopped before the end: %s.", strings.Join(halted, ", "))
		}
	case halted != nil:
		return b.String()
	}
	fmt.Fprintf(&b, "\n%s\n", wrap(said, 96))
	return b.String()
}

const proved = `In every run of these groups nobody met another in the critical section, every fence was higher than the last, and in ` +
	`the end every request had been granted or withdrawn and nothing was left over.`

// needs says what the machines that failed on this network miss.
func needs(network dmutextest.Network) string {
	switch {
	case network.Losses > 0:
		return " The machines assume that no message is lost; the session below them (package transport/session) repairs losses."
	case network.Unordered && network.Duplicates > 0:
		return " They need messages in order and each once; the session below them keeps it."
	case network.Unordered:
		return " They need messages in order; the session below them keeps it."
	case network.Duplicates > 0:
		return " They need each message once; the session below them keeps it."
	}
	return ""
}

// check explores one algorithm, until ctx ends.
func (c *checkCmd) check(ctx context.Context, a algorithm, p *progress) (checked, error) {
	r := checked{
		Algorithm: a.name, Nodes: c.Nodes, Requests: c.Requests, Cancel: c.Cancel, Network: c.network.String(),
	}
	if c.Quorums != "" {
		assignment, err := assignQuorums(c.Quorums, c.Nodes)
		if err != nil {
			return r, err
		}
		a.make = maekawaOf(assignment)
		r.Quorums = make(map[uint64]string)
		for site, members := range assignment.All() {
			r.Quorums[site] = "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(members), " ", ","), "[]") + "}"
		}
	}
	config := dmutextest.Config{
		Algorithm: a.make,
		Members:   dmutextest.Nodes(c.Nodes),
		Network:   c.network,
		Requests:  []int{c.Requests},
		MaxStates: c.MaxStates,
	}
	if c.Cancel {
		config.Cancels = []int{1}
	}
	began := time.Now()
	var report dmutextest.Report
	config.Progress = func(now dmutextest.Report) {
		if ctx.Err() != nil {
			report = now
			runtime.Goexit() // the only way out of Explore
		}
		p.live(soFar(a.name, now, time.Since(began)))
	}
	var err error
	explored := make(chan struct{})
	go func() {
		defer close(explored)
		report, err = dmutextest.Explore(config)
	}()
	<-explored
	p.clear()
	r.Seconds = time.Since(began).Seconds()
	r.States, r.Steps, r.Depth, r.Channel = report.States, report.Steps, report.Depth, report.Most
	r.Least, r.Greatest, r.Dense = report.Least, report.Greatest, report.Dense
	var v *dmutextest.Violation
	switch {
	case errors.As(err, &v):
		r.Verdict = wrong
		r.Violation = &violation{v.Kind.Error(), v.Why, v.Script}
	case err != nil:
		return r, err
	case report.Complete:
		r.Verdict = clean
	default:
		r.Verdict = stopped
	}
	return r, nil
}

// text is the verdict on a line, and the quorums below it if they were given.
func (r checked) text() string {
	var b strings.Builder
	of := fmt.Sprintf("%s x %s", several(r.Nodes, "node"), several(r.Requests, "request"))
	if r.Cancel {
		of += " with cancel"
	}
	fmt.Fprintf(&b, "%-14s %s, %s: %s. %s states, depth %d, in %.1f s", r.Algorithm, of, r.Network, r.Verdict, thousands(r.States), r.Depth, r.Seconds)
	if r.Verdict == clean {
		fmt.Fprintf(&b, "; %s a run", messagesOf(r.Least, r.Greatest))
	}
	b.WriteString("\n")
	for site := range uint64(r.Nodes) {
		if q, ok := r.Quorums[site+1]; ok {
			fmt.Fprintf(&b, "  node %d asks %s\n", site+1, q)
		}
	}
	return b.String()
}

func messagesOf(least, greatest int) string {
	if least == greatest {
		return several(least, "message")
	}
	return fmt.Sprintf("%d to %d messages", least, greatest)
}

// soFar tells how far an exploration is.
func soFar(name string, now dmutextest.Report, took time.Duration) string {
	speed := float64(now.States) / max(took.Seconds(), 1e-3)
	return fmt.Sprintf("%-14s %s states, depth %d, %s states/s", name, thousands(now.States), now.Depth, thousands(int(speed)))
}

// live shows what is going on: always on a terminal, now and then elsewhere.
func (p *progress) live(text string) {
	if p.told.IsZero() {
		p.told = time.Now()
	}
	if p.terminal {
		fmt.Fprint(p.out, clearLine+text)
	} else if time.Since(p.told) >= tellEvery {
		p.told = time.Now()
		p.say("%s", text)
	}
}

func several(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return thousands(n) + " " + what
}

// thousands writes a number so that it can be read.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
