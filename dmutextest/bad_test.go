package dmutextest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/suzukikasami"
)

// A again is a machine that never empties its output: each call returns all messages of the calls before, too.
type again struct {
	*broken
	out []dmutex.Message
}

func (a *again) add(out []dmutex.Message, err error) ([]dmutex.Message, error) {
	for _, o := range out {
		a.out = append(a.out, o.Clone())
	}
	return a.out, err
}

func (a *again) Request() ([]dmutex.Message, error) { return a.add(a.broken.Request()) }
func (a *again) Release() ([]dmutex.Message, error) { return a.add(a.broken.Release()) }
func (a *again) Handle(m dmutex.Message) ([]dmutex.Message, error) {
	return a.add(a.broken.Handle(m))
}
func (a *again) Clone() dmutex.Machine { return &again{broken: a.broken.Clone().(*broken)} }

func sendsAgain(s dmutex.Start) (dmutex.Machine, error) {
	m, err := broken{}.of(ricart.New)(s)
	if err != nil {
		return nil, err
	}
	return &again{broken: m.(*broken)}, nil
}

// A counting is a machine with one more field, which each method may use as it likes.
type counting struct {
	dmutex.Machine
	hidden int
	kept   []dmutex.NodeID
	rules  *countingRules
}

type countingRules struct {
	keeps bool // an idle machine is not forgotten
	after func(c *counting, m dmutex.Message, out []dmutex.Message) []dmutex.Message
	text  func(c *counting) string
	clone func(old, c *counting)
}

func (r countingRules) of(algorithm dmutex.Algorithm) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := algorithm(s)
		if err != nil {
			return nil, err
		}
		return &counting{Machine: m, rules: &r}, nil
	}
}

func (c *counting) Handle(m dmutex.Message) ([]dmutex.Message, error) {
	out, err := c.Machine.Handle(m)
	if err != nil {
		return out, err
	}
	return c.rules.after(c, m, out), nil
}

func (c *counting) AppendText(b []byte) ([]byte, error) {
	b, err := c.Machine.AppendText(b)
	if c.rules.text != nil {
		b = append(b, c.rules.text(c)...)
	}
	return b, err
}

func (c *counting) Clone() dmutex.Machine {
	n := &counting{Machine: c.Machine.Clone(), hidden: c.hidden, kept: slices.Clone(c.kept), rules: c.rules}
	if c.rules.clone != nil {
		c.rules.clone(c, n)
	}
	return n
}

func (c *counting) Forget() (clock, known uint64, ok bool) {
	clock, known, ok = c.Machine.Forget()
	return clock, known, ok && !c.rules.keeps
}

func (c *counting) Keeps() bool {
	if c.rules.keeps {
		return c.Phase() == dmutex.Idle && !c.Pending()
	}
	k, ok := c.Machine.(dmutex.Keeper)
	return ok && k.Keeps()
}

func (c *counting) Lends() dmutex.NodeID { return dmutex.None }

// Each of these machines is right but for one thing that the kit could believe without looking. Explore and Walk refuse it, and say what it is;
// so does TestMachine, which explores.
func TestBadMachines(t *testing.T) {
	inside := 0 // a variable that all machines share
	same := func(_ *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message { return out }
	for _, tt := range []struct {
		name      string
		algorithm dmutex.Algorithm
		kind      error
		why       string
	}{
		{"sends old messages again", sendsAgain, ErrContract, "again, which the call before has returned: each input begins with an empty output"},
		{"answers each message twice", countingRules{after: func(_ *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message {
			return append(out, out...)
		}}.of(ricart.New), ErrContract, "deliver of 2 sends 2->1 REPLY attempt=1 twice"},
		{"answers answers, each by two", broken{handle: func(b *broken, m dmutex.Message) ([]dmutex.Message, error) {
			m.From, m.To = m.To, m.From
			return []dmutex.Message{m, {Kind: m.Kind, From: m.From, To: m.To, Attempt: m.Attempt + 1}}, nil
		}}.born, ErrChannel, "the machines answer each other without end"},
		{"sends a kind that does not exist", countingRules{after: func(_ *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message {
			for i := range out {
				out[i].Kind = dmutex.Kind(dmutex.Kinds)
			}
			return out
		}}.of(ricart.New), ErrContract, "there is no such kind"},
		{"sends in the name of another", countingRules{after: func(_ *counting, m dmutex.Message, out []dmutex.Message) []dmutex.Message {
			for i := range out {
				out[i].From = 3 - out[i].From
			}
			return out
		}}.of(ricart.New), ErrContract, "2 sends 1->1 REPLY attempt=1: a message is from its sender to another node"},
		{"keeps the lists of a message", countingRules{
			after: func(c *counting, m dmutex.Message, out []dmutex.Message) []dmutex.Message {
				c.kept = c.kept[:0:0]
				if m.Kind == dmutex.Token {
					c.hidden = 0
					c.rules = &countingRules{after: same, text: func(*counting) string { return fmt.Sprint(" has ", m.Numbers) }}
				}
				return out
			},
		}.of(suzukikasami.New), ErrContract, "Handle of 2 keeps the lists of the message that it is given"},
		{"changes the lists of a message", countingRules{
			after: func(_ *counting, m dmutex.Message, out []dmutex.Message) []dmutex.Message {
				for i := range m.Numbers {
					m.Numbers[i]++
				}
				return out
			},
		}.of(suzukikasami.New), ErrContract, "changes the lists of the message that it is given, 1->2 TOKEN"},
		{"a field is not in the text", countingRules{after: func(c *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message {
			if c.hidden++; len(out) > 0 {
				out[0].Clock = uint64(c.hidden)
			}
			return out
		}}.of(ricart.New), ErrContract, "must depend on what AppendText writes, not on a field that it leaves out"},
		{"the fence is not in the text", broken{
			text:  func(b *broken) string { s, _, _ := strings.Cut(text(b.Machine), " known="); return s },
			waits: func(good []dmutex.NodeID, _ dmutex.Phase) []dmutex.NodeID { return good },
		}.born, ErrContract, "AppendText"},
		{"a variable of the package decides", countingRules{after: func(_ *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message {
			if inside++; inside%5 == 0 {
				return nil
			}
			return out
		}}.of(ricart.New), ErrContract, "a variable of the package"},
		{"a variable of the package is in all texts", countingRules{
			after: func(_ *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message { inside++; return out },
			text:  func(*counting) string { return fmt.Sprint(" inside ", inside) },
		}.of(ricart.New), ErrContract, "a variable of the package"},
		{"the order of a map decides", countingRules{after: func(_ *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message {
			any := map[int]bool{1: true, 2: true, 3: true, 4: true}
			for k := range any {
				if k == 1 {
					return out
				}
				return nil
			}
			return nil
		}}.of(ricart.New), ErrContract, "or the order of a map"},
		{"the order of a map is in the text", countingRules{after: same, text: func(*counting) string {
			var all string
			for k := range map[int]bool{1: true, 2: true, 3: true, 4: true} {
				all += fmt.Sprint(" ", k)
			}
			return all
		}}.of(ricart.New), ErrContract, "it must depend on the state only, not on the order of a map"},
		{"the clone lacks a field", countingRules{
			keeps: true,
			after: func(c *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message { c.hidden = 1; return out },
			text:  func(c *counting) string { return fmt.Sprint(" ", c.hidden) },
			clone: func(_, c *counting) { c.hidden = 0 },
		}.of(ricart.New), ErrContract, "Clone must copy every field"},
		{"the clone shares a slice", countingRules{
			keeps: true,
			after: func(c *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message {
				if c.kept == nil {
					c.kept = make([]dmutex.NodeID, 1)
				}
				c.kept[0]++
				return out
			},
			text:  func(c *counting) string { return fmt.Sprint(" ", c.kept) },
			clone: func(old, c *counting) { c.kept = old.kept },
		}.of(ricart.New), ErrContract, "Clone must copy what the machine changes"},
		{"WaitsFor changes the machine", broken{waits: nil, text: func(b *broken) string { return text(b.Machine) + fmt.Sprint(inside) },
			pending: func(b *broken) bool { inside++; return b.Machine.Pending() }}.born, ErrContract, "no method that only asks may change the state"},
		{"AppendText does not append", dropping{}.born, ErrContract, "it must append"},
		{"WaitsFor does not append", dropping{waits: true}.born, ErrContract, "WaitsFor of 1 returns [] for [1]: it must append"},
		{"takes an early reply", broken{handle: func(b *broken, m dmutex.Message) ([]dmutex.Message, error) {
			return nil, dmutex.PeerMistake("no such message")
		}}.born, ErrRefused, "Handle of 2 refuses what 1 sent, so one of the two is wrong: dmutex: peer's mistake: no such message"},
		{"left with a counter", countingRules{
			after: func(c *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message { c.hidden++; return out },
			text:  func(c *counting) string { return fmt.Sprint(" replies ", c.hidden) },
		}.of(ricart.New), ErrContract, "Forget must return false while the machine has more to remember, and what need not be remembered must be reset, or stay out of AppendText"},
		{"panics", countingRules{after: func(c *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message {
			c.kept[len(out)]++
			return out
		}}.of(ricart.New), ErrContract, "Handle of 2 panics at bad_test.go:"},
		{"panics with two lines", countingRules{after: func(*counting, dmutex.Message, []dmutex.Message) []dmutex.Message {
			panic("one\ntwo")
		}}.of(ricart.New), ErrContract, ": one two"},
		{"panics inside another package", countingRules{after: func(_ *counting, _ dmutex.Message, out []dmutex.Message) []dmutex.Message {
			slices.SortFunc(append(out, out...), nil)
			return out
		}}.of(ricart.New), ErrContract, "invalid memory address or nil pointer dereference"},
		{"its times are not its own", countingRules{after: same}.of(lamport.New), nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{Algorithm: tt.algorithm, Members: Nodes(2), Requests: []int{2}}
			_, err := Explore(c)
			_, walked := Walk(c, 1, 200)
			if tt.kind == nil {
				require.NoError(t, err)
				require.NoError(t, walked)
				return
			}
			for _, err := range []error{err, walked} {
				require.ErrorIs(t, err, tt.kind)
				require.ErrorContains(t, err, tt.why)
				v, _ := wrongly(err)
				require.Less(t, strings.Count(v.Script, "\n"), 1000)
			}
			log := failure(t, func(t testing.TB) { states(t, Config{Algorithm: tt.algorithm, Members: Nodes(3), Requests: []int{2}}) })
			require.Contains(t, log, strings.TrimPrefix(tt.kind.Error(), pkg))
		})
	}
}

// A dropping machine forgets what it is to append to.
type dropping struct {
	dmutex.Machine
	waits bool
}

func (d dropping) born(s dmutex.Start) (dmutex.Machine, error) {
	m, err := ricart.New(s)
	return &dropping{m, d.waits}, err
}

func (d *dropping) AppendText(b []byte) ([]byte, error) {
	if d.waits {
		return d.Machine.AppendText(b)
	}
	return d.Machine.AppendText(nil)
}

func (d *dropping) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if d.waits {
		return d.Machine.WaitsFor(nil)
	}
	return d.Machine.WaitsFor(b)
}

func (d *dropping) Clone() dmutex.Machine { return &dropping{d.Machine.Clone(), d.waits} }

// A machine that sends its old messages again is refused by scripts, too, where it does so, and by the fuzz body. What pumps
// messages until none is left ends.
func TestSendsAgain(t *testing.T) {
	got, err := RunScript(sendsAgain, "group 1 2\n\nrequest 1\n\ndeliver all\n\nrelease 1")
	require.NoError(t, err)
	require.Contains(t, got, "violation: contract: Handle of 1 sends 1->2 REQUEST attempt=1 again")

	log := failure(t, func(t testing.TB) {
		fuzzOnce(t, sendsAgain, Nodes(3), []byte{byte(request), 0, byte(cancel), 0, byte(request), 0})
	})
	require.Contains(t, log, "each input begins with an empty output")

	log = failure(t, func(t testing.TB) { allocations(t, sendsAgain, Nodes(3)) })
	require.Contains(t, log, "the machines answer each other without end")
}
