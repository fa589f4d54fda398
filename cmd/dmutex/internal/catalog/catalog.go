// Package catalog lists the algorithms that the tool can run. Of this module it imports nothing else.
package catalog

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
)

// An Algorithm is one that the tool can run, with what its paper promises.
type Algorithm struct {
	Name string
	New  dmutex.Algorithm // nil for no lock at all

	// The messages of one entry: the paper's formula, and the least and the
	// greatest number in a group of n. They are empty and nil if no paper says it.
	Formula  string
	Messages func(n int) (least, greatest int)
	OwnFree  bool // the entries of the lock's home need no messages

	About string
}

// All are all that there are: a line each.
var All = []Algorithm{
	{"central", central.New, "3", func(int) (int, int) { return 3, 3 }, true, "one node grants, first come, first served; its own entries are free"},
	{"witnessed", central.Witnessed, "3", func(int) (int, int) { return 3, 3 }, false, "the same with a witness of its own entries; the default with leases"},
	{"lamport", lamport.New, "3(N-1)", func(n int) (int, int) { return 3 * (n - 1), 3 * (n - 1) }, false, "Lamport 1978: every node queues all requests by their time"},
	{"lamport-omit", lamport.OmitReplies, "2(N-1)..3(N-1)", func(n int) (int, int) { return 2 * (n - 1), 3 * (n - 1) }, false, "the same, but a node that wants or has the lock itself does not reply"},
	{"ricart", ricart.New, "2(N-1)", func(n int) (int, int) { return 2 * (n - 1), 2 * (n - 1) }, false, "Ricart and Agrawala 1981: enter when all others have agreed"},
	{"carvalho", ricart.Carvalho, "0..2(N-1)", func(n int) (int, int) { return 0, 2 * (n - 1) }, false, "Carvalho and Roucairol 1983: an agreement stands until asked back"},
	{"maekawa", maekawa.New, "3(K-1)..6(K-1)", gridMessages, false, "Maekawa 1985, corrected: ask K nodes, a row and a column of a grid"},
	{"suzukikasami", suzukikasami.New, "0..N", func(n int) (int, int) { return 0, n }, false, "Suzuki and Kasami 1985: ask all for the token, enter with it"},
	{"ring", ring.New, "0..N", func(n int) (int, int) { return 0, n }, false, "a token goes around while any node wants it"},
}

// Mine is the name of the algorithm that Add adds.
const Mine = "mine"

// Add puts an algorithm of the program's author before the others.
func Add(algorithm dmutex.Algorithm) {
	All = slices.Insert(All, 0, Algorithm{Name: Mine, New: algorithm, About: "the algorithm of this program"})
}

// Default is the name that a command takes if it is given none: that of the author's algorithm, if there is one.
func Default(otherwise string) string {
	if All[0].Name == Mine {
		return Mine
	}
	return otherwise
}

// NoLock is what happens without a lock.
var NoLock = Algorithm{Name: "no lock", About: "all enter at once"}

// Shares reports whether the algorithm lets nodes share the lock.
func (a Algorithm) Shares() bool {
	m, err := a.New(dmutex.Start{Self: 1, Members: []dmutex.NodeID{1}})
	_, ok := m.(dmutex.Sharer)
	return ok && err == nil
}

// Alone says that the algorithm does not share, and what to do. Of the author's it names the methods that are
// missing, or have another signature.
func (a Algorithm) Alone() string {
	if a.Name != Mine {
		return a.Name + " lets one node in at a time (it is no dmutex.Sharer): use central, lamport or ricart"
	}
	m, err := a.New(dmutex.Start{Self: 1, Members: []dmutex.NodeID{1}})
	if err != nil {
		return fmt.Sprintf("%s makes no machine: %v", a.Name, err)
	}
	var lacks []string
	for method := range reflect.TypeFor[dmutex.Sharer]().Methods() {
		own := reflect.ValueOf(m).MethodByName(method.Name)
		if !own.IsValid() || own.Type() != method.Type {
			lacks = append(lacks, method.Name+strings.TrimPrefix(method.Type.String(), "func"))
		}
	}
	last := len(lacks) - 1
	text := lacks[last]
	if last > 0 {
		text = strings.Join(lacks[:last], ", ") + " and " + text
	}
	return a.Name + " lets one node in at a time: for a dmutex.Sharer it lacks " + text
}

// Shared returns the algorithm with its formula for requests that share the lock, beside others. Each request
// is the subject of at most one INQUIRE from the coordinator, and under ricart of one from each other node.
func (a Algorithm) Shared() Algorithm {
	switch a.Formula {
	case "3":
		a.Formula, a.Messages = "3..4", func(int) (least, greatest int) { return 3, 4 }
	case "2(N-1)":
		a.Formula, a.Messages = "2(N-1)..3(N-1)", func(n int) (least, greatest int) { return 2 * (n - 1), 3 * (n - 1) }
	}
	return a
}

// gridMessages counts Maekawa's messages: three for each other site of a quorum, and up to
// three more under contention. A quorum is a row and a column of a square. If n is not a
// square, the last row is short and the quorums differ in size.
func gridMessages(n int) (least, greatest int) {
	side := 1
	for side*side < n {
		side++
	}
	least = 3 * n
	for site := range n {
		row := min(side, n-site/side*side)
		column := (n - site%side + side - 1) / side
		others := row + column - 2
		least, greatest = min(least, 3*others), max(greatest, 6*others)
	}
	return least, greatest
}

// Names lists the names of all algorithms.
func Names() string {
	var names []string
	for _, a := range All {
		names = append(names, a.Name)
	}
	return strings.Join(names, ", ")
}

// A Choice is a flag that chooses one algorithm, or all of them by the name "all".
type Choice []Algorithm

// UnmarshalText reads the name.
func (c *Choice) UnmarshalText(name []byte) error {
	if *c = slices.Clone(All); string(name) == "all" {
		return nil
	}
	a, ok := Find(string(name))
	if *c = (Choice{a}); !ok {
		return fmt.Errorf("there is no %q: choose all or one of %s", name, Names())
	}
	return nil
}

// Find returns the algorithm of that name, which may also be one of some more.
func Find(name string, more ...Algorithm) (a Algorithm, ok bool) {
	for _, a := range slices.Concat(All, more) {
		if a.Name == name {
			return a, true
		}
	}
	return a, false
}

// Messages compares the messages of a run with the formula.
type Messages struct {
	Sent     uint64  `json:"sent"`
	Entries  int     `json:"entries"` // those that the formula is about
	PerEntry float64 `json:"per_entry"`
	Formula  string  `json:"formula"`
	Least    int     `json:"least"`
	Greatest int     `json:"greatest"`
}

// Count compares the messages that n nodes sent for some entries with the formula.
func (a Algorithm) Count(n int, sent uint64, entries int) Messages {
	m := Messages{Sent: sent, Entries: entries, PerEntry: float64(sent) / float64(max(1, entries)), Formula: a.Formula}
	if a.Messages != nil {
		m.Least, m.Greatest = a.Messages(n)
	}
	return m
}

// Fit reports whether the messages are as many as the formula says, if there is one.
func (m Messages) Fit() bool {
	return m.Formula == "" || m.Sent >= uint64(m.Least*m.Entries) && m.Sent <= uint64(m.Greatest*m.Entries)
}

// Span is the formula's value, a number or a range, or a dash if there is no formula.
func (m Messages) Span() string {
	if m.Formula == "" {
		return "-"
	}
	if m.Least == m.Greatest {
		return fmt.Sprint(m.Least)
	}
	return fmt.Sprintf("%d..%d", m.Least, m.Greatest)
}

// Measured writes the messages of one entry. A whole number is written as such,
// which shows that an exact formula is met exactly.
func (m Messages) Measured() string {
	if m.Entries > 0 && m.Sent%uint64(m.Entries) == 0 {
		return fmt.Sprint(m.Sent / uint64(m.Entries))
	}
	return fmt.Sprintf("%.3f", m.PerEntry)
}

// Broken is wrong on purpose, to show that a check notices it: every node takes
// the agreement of one peer for granted and enters on N-2 replies.
var Broken = Algorithm{"broken", newHasty, "2(N-1)", func(n int) (int, int) { return 2 * (n - 1), 2 * (n - 1) }, false, "Ricart and Agrawala on N-2 replies: wrong on purpose"}

// hasty is a machine of Ricart and Agrawala that does not wait for its first
// peer: it forges that peer's REPLY.
type hasty struct{ dmutex.Machine }

func newHasty(s dmutex.Start) (dmutex.Machine, error) {
	m, err := ricart.New(s)
	return hasty{m}, err
}

// AppendText implements [dmutex.Machine]: a trace names its algorithm so.
func (h hasty) AppendText(b []byte) ([]byte, error) {
	return h.Machine.AppendText(append(b, "hasty "...))
}

// Clone implements [dmutex.Machine].
func (h hasty) Clone() dmutex.Machine { return hasty{h.Machine.Clone()} }

// Request implements [dmutex.Machine].
func (h hasty) Request() ([]dmutex.Message, error) {
	out, err := h.Machine.Request()
	if err != nil || len(out) == 0 {
		return out, err
	}
	out = slices.Clone(out)
	asked := out[0]
	more, err := h.Handle(dmutex.Message{Kind: dmutex.Reply, From: asked.To, To: asked.From, Attempt: asked.Attempt, Fence: asked.Fence})
	return append(out, more...), err
}
