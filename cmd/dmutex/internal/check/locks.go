package check

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
	quorums "github.com/dmutex/dmutex/cmd/dmutex/internal/quorum"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/quorum"
)

type lockOptions struct {
	Algorithm catalog.Choice `default:"${several}" help:"One algorithm, or all of them: ${algorithms}."`
	Requests  int            `default:"2" least:"1" most:"255" help:"Requests that each node makes in a run, 1 to 255."`
	Shares    int            `default:"0" least:"0" most:"255" help:"Requests to share the lock that each node makes besides, 0 to 255. Of all algorithms those that share are checked then."`
	Network   string         `default:"fifo" help:"fifo, unordered (messages may overtake each other), duplicating (fifo, and one message of a run arrives twice), lossy (fifo, and one is lost), or such as \"unordered, 2 duplicates, channel 4\"."`
	Cancel    bool           `help:"Each node may also withdraw a request, once in a run and at any time."`
	Quorums   string         `placeholder:"QUORUMS" help:"Quorums of maekawa: a construction (${constructions}) or a list such as \"{1,2},{1,3},{2,3}\". The default is a row and a column of a square."`

	Output string `short:"o" placeholder:"FILE" help:"Write the run to the first violation into this file: as a picture, .svg or .html (a page that needs nothing else), or as a script, .txt. Nothing is written if nothing is wrong."`

	write   func(*draw.Drawing) []byte
	network dmutextest.Network
	quorums map[uint64]string // by node, if they were given
}

func (o *lockOptions) validate(nodes int) (err error) {
	network := map[string]string{"duplicating": "fifo, 1 duplicate", "lossy": "fifo, 1 loss"}[o.Network]
	if network == "" {
		network = o.Network
	}
	if o.network, err = dmutextest.ParseNetwork(network); err != nil {
		return fmt.Errorf("--network=%s: choose fifo, unordered, duplicating or lossy, or write it as in \"unordered, 2 duplicates, channel 4\"", o.Network)
	}
	if o.write, err = draw.Format(o.Output, ""); err != nil && filepath.Ext(o.Output) != ".txt" {
		return fmt.Errorf("--output=%s: the name must end in .svg, .html or .txt", o.Output)
	}
	switch {
	case o.Shares > 0 && !slices.ContainsFunc(o.Algorithm, catalog.Algorithm.Shares):
		return errors.New("--shares: " + o.Algorithm[0].Alone())
	case o.Quorums != "" && (len(o.Algorithm) > 1 || o.Algorithm[0].Name != "maekawa"):
		return errors.New("--quorums needs --algorithm=maekawa")
	case o.Quorums != "":
		assigned, err := assignQuorums(o.Quorums, nodes)
		if err != nil {
			return fmt.Errorf("--quorums=%s: %w", o.Quorums, err)
		}
		o.give(assigned)
	}
	return nil
}

// assignQuorums gives each of the nodes 1 to n a quorum: of a construction, or
// of the quorums that are listed.
func assignQuorums(spec string, n int) (a quorum.Assignment[int64], err error) {
	var nodes []int64
	for i := range n {
		nodes = append(nodes, int64(i+1))
	}
	var coterie quorum.Coterie[int64]
	known := quorum.Constructions[int64]()
	if i := slices.IndexFunc(known, func(c quorum.Construction[int64]) bool { return c.Name == spec }); i >= 0 {
		coterie, err = known[i].Build(nodes...)
	} else {
		var listed [][]int64
		if listed, err = quorums.Numbers(spec); err == nil {
			coterie, err = quorum.New(listed...)
		}
	}
	if err != nil {
		return a, err
	}
	for _, site := range coterie.Sites() {
		if site < 1 || site > int64(n) {
			return a, fmt.Errorf("there is no node %d among %d", site, n)
		}
	}
	return coterie.Assign(nodes...)
}

// give makes Maekawa's algorithm, the only one chosen, use these quorums.
func (o *lockOptions) give(assigned quorum.Assignment[int64]) {
	asked := make(map[dmutex.NodeID][]dmutex.NodeID)
	o.quorums = make(map[uint64]string)
	for site, members := range assigned.All() {
		for _, m := range members {
			asked[dmutex.NodeID(site)] = append(asked[dmutex.NodeID(site)], dmutex.NodeID(m))
		}
		o.quorums[uint64(site)] = "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(members), " ", ","), "[]") + "}"
	}
	o.Algorithm[0].New = maekawa.With(func(site dmutex.NodeID) []dmutex.NodeID { return asked[site] })
}

// A lock is the check of one lock algorithm.
type lock struct {
	Algorithm string            `json:"algorithm"`
	Quorums   map[uint64]string `json:"quorums,omitempty"` // by node, if they were given
	Nodes     int               `json:"nodes"`
	Requests  int               `json:"requests_each"`
	Shares    int               `json:"shares_each,omitempty"`
	Cancel    bool              `json:"cancel"`
	Network   string            `json:"network"`
	finding
	Steps    int  `json:"steps"`
	Depth    int  `json:"depth"`
	Channel  int  `json:"most_in_a_channel"`
	Least    int  `json:"least_messages,omitempty"` // of a whole run; known if the verdict is clean
	Greatest int  `json:"greatest_messages,omitempty"`
	Dense    bool `json:"dense_fences"` // the n-th grant had fence n

	config dmutextest.Config
}

func (o *lockOptions) subjects(c *Cmd) (all []subject) {
	for _, a := range o.Algorithm {
		if o.Shares > 0 && !a.Shares() {
			continue
		}
		l := &lock{
			Algorithm: a.Name, Quorums: o.quorums, Nodes: c.Nodes, Requests: o.Requests, Shares: o.Shares, Cancel: o.Cancel, Network: o.network.String(),
			config: dmutextest.Config{
				Algorithm: a.New, Members: dmutextest.Nodes(c.Nodes), Network: o.network,
				Requests: []int{o.Requests}, MaxStates: c.MaxStates,
			},
		}
		if o.Shares > 0 {
			l.config.Shares = []int{o.Shares}
		}
		if o.Cancel {
			l.config.Cancels = []int{1}
		}
		all = append(all, l)
	}
	return all
}

func (l *lock) title() string { return l.Algorithm }

func (l *lock) explore(more func(string) bool) error {
	began := time.Now()
	l.config.Progress = func(now dmutextest.Report) bool { return more(soFar(now, time.Since(began))) }
	r, err := dmutextest.Explore(l.config)
	l.Steps, l.Depth, l.Channel = r.Steps, r.Depth, r.Most
	l.Least, l.Greatest, l.Dense = r.Least, r.Greatest, r.Dense
	return l.judge(r.States, r.Complete, err)
}

func soFar(now dmutextest.Report, took time.Duration) string {
	speed := float64(now.States) / max(took.Seconds(), 1e-3)
	return fmt.Sprintf("%s states, depth %d, %s states/s", tool.Thousands(now.States), now.Depth, tool.Thousands(int(speed)))
}

// text is the verdict on a line, and the quorums below it if they were given.
func (l *lock) text() string {
	var b strings.Builder
	of := fmt.Sprintf("%s x %s", tool.Several(l.Nodes, "node"), tool.Several(l.Requests, "request"))
	if l.Shares > 0 {
		of += fmt.Sprintf(" and %d to share", l.Shares)
	}
	if l.Cancel {
		of += " with cancel"
	}
	fmt.Fprintf(&b, "%-14s %s, %s: %s. %s states, depth %d, in %.1f s", l.Algorithm, of, l.Network, l.Verdict, tool.Thousands(l.States), l.Depth, l.Seconds)
	if l.Verdict == clean {
		messages := tool.Several(l.Greatest, "message")
		if l.Least != l.Greatest {
			messages = fmt.Sprintf("%d to %s", l.Least, messages)
		}
		fmt.Fprintf(&b, "; %s a run", messages)
	}
	b.WriteString("\n")
	for site := range uint64(l.Nodes) {
		if q, ok := l.Quorums[site+1]; ok {
			fmt.Fprintf(&b, "  node %d asks %s\n", site+1, q)
		}
	}
	return b.String()
}

// closing is what stands below the verdicts: the scripts of the violations, and
// what it all means.
func (o *lockOptions) closing(all []subject) string {
	var b strings.Builder
	narrow := false
	for _, s := range all {
		if v := s.found().Violation; v != nil {
			fmt.Fprintf(&b, "\n%s:\n\n%s", s.title(), v.Script)
			narrow = narrow || errors.Is(v.kind, dmutextest.ErrChannel)
		}
	}
	failed, halted := named(all, wrong), named(all, stopped)
	var said tool.Phrases
	said.Add(failed != nil, "%d of %d failed: %s.", len(failed), len(all), strings.Join(failed, ", "))
	said.Add(failed != nil && !narrow, "%s", needs(o.network, failed))
	said.Add(failed != nil && halted != nil, "Stopped before the end: %s.", strings.Join(halted, ", "))
	met, last := "", ""
	if o.Shares > 0 {
		met, last = " unless both shared it", " that it conflicts with"
	}
	said.Add(failed == nil && halted == nil, proved, met, last)
	if said != nil {
		fmt.Fprintf(&b, "\n%s\n", tool.Wrap(strings.Join(said, " ")))
	}
	return b.String()
}

// draw draws the first violation, or writes its script, if that is wanted.
func (o *lockOptions) draw(con *tool.Console, all []subject) error {
	for _, s := range all {
		l, ok := s.(*lock)
		if o.Output == "" || !ok || l.Violation == nil {
			continue
		}
		what := fmt.Sprintf("%s, %s: %s: %s", l.Algorithm, l.Network, l.Violation.Kind, l.Violation.Why)
		written := []byte(l.Violation.Script)
		if o.write != nil {
			traces, err := dmutextest.TraceScript(l.config.Algorithm, l.Violation.Script)
			if len(traces) == 0 {
				return err
			}
			drawing, err := draw.New(traces, draw.Options{Title: what, Broken: l.Violation.Kind})
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			written = o.write(drawing)
		}
		if err := os.WriteFile(o.Output, written, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(con.Err, "wrote %s: %s\n", o.Output, what)
		return nil
	}
	return nil
}

const proved = `In every run of these groups no two nodes met in the critical section%s, every fence was higher than the last%s, and in ` +
	`the end every request had been granted or withdrawn and nothing was left over.`

// needs says what the machines that failed on this network assume. Of an algorithm that is not the library's nobody
// knows what it assumes.
func needs(network dmutextest.Network, failed []string) string {
	they := "They need"
	if slices.Contains(failed, catalog.Mine) {
		they = strings.Join(slices.DeleteFunc(slices.Clone(failed), func(name string) bool { return name == catalog.Mine }), ", ") + " need"
	}
	switch {
	case network.Losses > 0:
		return "The machines assume that no message is lost; the stream below them (package internal/stream) repairs losses."
	case they == " need":
		return unexcused(network)
	case network.Unordered && network.Duplicates > 0:
		return they + " messages in order, and each only once; the stream below them provides that."
	case network.Unordered:
		return they + " messages in order; the stream below them provides that."
	case network.Duplicates > 0:
		return they + " each message only once; the stream below them provides that."
	}
	return ""
}

// unexcused says what follows if only the author's own algorithm has failed.
func unexcused(network dmutextest.Network) string {
	if !network.Unordered && network.Duplicates == 0 {
		return ""
	}
	return "Unless the paper of " + catalog.Mine + " excludes such a network, a rule of it is missing or wrong."
}
