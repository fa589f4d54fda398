package dmutextest

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

// A broken machine is a correct one with some methods replaced; nil replaces nothing.
type broken struct {
	dmutex.Machine
	self    dmutex.NodeID
	request func(*broken) ([]dmutex.Message, error)
	cancel  func(*broken) ([]dmutex.Message, error)
	handle  func(*broken, dmutex.Message) ([]dmutex.Message, error)
	phase   func(*broken) dmutex.Phase
	fence   func(*broken) uint64
	pending func(*broken) bool
	forget  func(*broken) (clock, known uint64, ok bool)
	text    func(*broken) string
	clone   func(*broken) dmutex.Machine
	waits   func(good []dmutex.NodeID, is dmutex.Phase) []dmutex.NodeID
	lends   func(good dmutex.NodeID) dmutex.NodeID
}

func (b *broken) Request() ([]dmutex.Message, error) {
	if b.request != nil {
		return b.request(b)
	}
	return b.Machine.Request()
}

func (b *broken) Cancel() ([]dmutex.Message, error) {
	if b.cancel != nil {
		return b.cancel(b)
	}
	return b.Machine.Cancel()
}

func (b *broken) Handle(m dmutex.Message) ([]dmutex.Message, error) {
	if b.handle != nil {
		return b.handle(b, m)
	}
	return b.Machine.Handle(m)
}

func (b *broken) Phase() dmutex.Phase {
	if b.phase != nil {
		return b.phase(b)
	}
	return b.Machine.Phase()
}

func (b *broken) Fence() uint64 {
	if b.fence != nil {
		return b.fence(b)
	}
	return b.Machine.Fence()
}

func (b *broken) Pending() bool {
	if b.pending != nil {
		return b.pending(b)
	}
	return b.Machine.Pending()
}

func (b *broken) Forget() (clock, known uint64, ok bool) {
	if b.forget != nil {
		return b.forget(b)
	}
	return b.Machine.Forget()
}

func (b *broken) AppendText(to []byte) ([]byte, error) {
	if b.text != nil {
		return append(to, b.text(b)...), nil
	}
	return b.Machine.AppendText(to)
}

func (b *broken) Clone() dmutex.Machine {
	if b.clone != nil {
		return b.clone(b)
	}
	c := *b
	c.Machine = b.Machine.Clone()
	return &c
}

func (b *broken) WaitsFor(to []dmutex.NodeID) []dmutex.NodeID {
	if b.waits != nil {
		return append(to, b.waits(b.Machine.WaitsFor(nil), b.Phase())...)
	}
	return b.Machine.WaitsFor(to)
}

func (b *broken) Lends() (good dmutex.NodeID) {
	if lender, ok := b.Machine.(dmutex.Lender); ok {
		good = lender.Lends()
	}
	if b.lends != nil {
		return b.lends(good)
	}
	return good
}

func (b *broken) Keeps() bool {
	k, ok := b.Machine.(dmutex.Keeper)
	return ok && k.Keeps()
}

// of breaks the machines of an algorithm.
func (b broken) of(algorithm dmutex.Algorithm) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := algorithm(s)
		if err != nil {
			return nil, err
		}
		b := b
		b.Machine, b.self = m, s.Self
		return &b, nil
	}
}

func (b broken) born(s dmutex.Start) (dmutex.Machine, error) { return b.of(ricart.New)(s) }

// catch sends every message back.
var catch = broken{handle: func(_ *broken, m dmutex.Message) ([]dmutex.Message, error) {
	m.From, m.To = m.To, m.From
	return []dmutex.Message{m}, nil
}}

// A recorder is a test whose failure is recorded.
type recorder struct {
	testing.TB
	failed bool
	log    string
}

func (r *recorder) Helper() {}
func (r *recorder) Error(args ...any) {
	r.failed, r.log = true, r.log+fmt.Sprintln(args...)
}
func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

// failure returns what a test said when it failed.
func failure(t *testing.T, test func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	require.True(t, r.failed, "the test passes")
	return r.log
}

// Every part of TestMachine fails for a machine that is broken there.
func TestMachineFails(t *testing.T) {
	part := map[string]func(testing.TB, dmutex.Algorithm){
		"alone":  alone,
		"starts": func(t testing.TB, a dmutex.Algorithm) { starts(t, a, Nodes(3)) },
		"states": func(t testing.TB, a dmutex.Algorithm) {
			states(t, Config{Algorithm: a, Members: Nodes(2), Requests: []int{2}, Cancels: []int{1}})
		},
		"carried over": func(t testing.TB, a dmutex.Algorithm) {
			states(t, Config{Algorithm: a, Members: Nodes(2), Holder: 2, Fence: 7, Requests: []int{1}})
		},
		"futures": func(t testing.TB, a dmutex.Algorithm) {
			futures(t, Config{Algorithm: a, Members: Nodes(2), Requests: []int{2}, Cancels: []int{1}})
		},
		"outputs":     func(t testing.TB, a dmutex.Algorithm) { outputs(t, a, Nodes(3)) },
		"allocations": func(t testing.TB, a dmutex.Algorithm) { allocations(t, a, Nodes(3)) },
	}
	copies := func(out []dmutex.Message, err error) ([]dmutex.Message, error) {
		return append([]dmutex.Message(nil), out...), err
	}
	for _, tt := range []struct {
		name   string
		part   string
		broken broken
		want   string
	}{
		{
			"waits for nobody", "alone",
			broken{phase: func(b *broken) dmutex.Phase {
				if b.Machine.Phase() == dmutex.Held {
					return dmutex.Waiting
				}
				return dmutex.Idle
			}, fence: func(*broken) uint64 { return 0 }},
			"three entries of a node alone: got 2 states",
		},
		{
			"fences begin late", "alone",
			broken{fence: func(b *broken) uint64 { return 2 * b.Machine.Fence() }},
			"three entries of a node alone: got 7 states, 6 steps, depth 6, fifo, at most 0 in a channel, complete",
		},
		{
			"listens to strangers", "states",
			broken{handle: func(b *broken, m dmutex.Message) ([]dmutex.Message, error) {
				if m.From == 3 {
					return nil, nil
				}
				return b.Machine.Handle(m)
			}},
			"3->1 KIND0 attempt=1 clock=1 is refused by <nil>",
		},
		{
			"blames the caller", "states",
			broken{handle: func(b *broken, m dmutex.Message) ([]dmutex.Message, error) {
				out, err := b.Machine.Handle(m)
				if err != nil {
					err = dmutex.Misuse(err.Error())
				}
				return out, err
			}},
			"(want dmutex: peer's mistake)",
		},
		{
			"refuses late", "states",
			broken{request: func(b *broken) ([]dmutex.Message, error) {
				if b.Phase() == dmutex.Waiting {
					b.Machine.Cancel()
					return nil, dmutex.Misuse("too late")
				}
				return b.Machine.Request()
			}},
			"request is refused by dmutex: misuse: too late (want dmutex: misuse), makes",
		},
		{
			"takes any release", "states",
			broken{request: func(b *broken) ([]dmutex.Message, error) {
				if b.Phase() == dmutex.Held {
					return nil, nil
				}
				return b.Machine.Request()
			}},
			"request is refused by <nil> (want dmutex: misuse)",
		},
		{
			"takes a grant for a request", "states",
			broken{pending: func(b *broken) bool { return b.Machine.Pending() || b.Machine.Phase() == dmutex.Held }},
			"held, and Pending is true",
		},
		{
			"clones share", "states",
			broken{clone: func(b *broken) dmutex.Machine { c := *b; return &c }},
			"contract: an input to a clone of",
		},
		{
			"clones forget", "states",
			broken{clone: func(b *broken) dmutex.Machine {
				m, _ := b.born(dmutex.Start{Self: b.self, Members: Nodes(2)})
				return m
			}},
			"the clone of",
		},
		{
			"forgets too early", "states",
			broken{forget: func(*broken) (clock, known uint64, ok bool) { return 0, 0, true }},
			"Forget lets",
		},
		{
			"cannot be canceled", "states",
			broken{cancel: func(b *broken) ([]dmutex.Message, error) { return nil, nil }},
			"contract: cancel makes 1, which was waiting, waiting",
		},
		{
			"keeps its fence", "states",
			broken{fence: func(b *broken) uint64 {
				if b.Machine.Phase() == dmutex.Waiting {
					return 5
				}
				return b.Machine.Fence()
			}},
			"contract: Fence of 1 is 5 while it is waiting",
		},
		{
			"does not carry over", "carried over",
			broken{fence: func(b *broken) uint64 { return b.Machine.Fence() / 8 }},
			"2 is born held with fence 0, not held with fence 7",
		},
		{
			"text without the clock", "futures",
			broken{text: func(b *broken) string { // so equal texts may have different futures
				s, _ := b.Machine.AppendText(nil)
				words := strings.Fields(string(s))
				kept := words[:0]
				for _, w := range words {
					if !strings.HasPrefix(w, "clock=") {
						kept = append(kept, w)
					}
				}
				return strings.Join(kept, " ")
			}},
			"must depend on what AppendText writes",
		},
		{
			"output is kept", "outputs",
			broken{request: func(b *broken) ([]dmutex.Message, error) { return copies(b.Machine.Request()) }},
			"the next call left 1->2 REQUEST attempt=1",
		},
		{
			"output is new", "allocations",
			broken{request: func(b *broken) ([]dmutex.Message, error) { return copies(b.Machine.Request()) }},
			"3 allocations",
		},
		{
			"deaf", "allocations",
			broken{handle: func(*broken, dmutex.Message) ([]dmutex.Message, error) { return nil, nil }},
			"node 1 waits forever",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := failure(t, func(t testing.TB) { part[tt.part](t, tt.broken.born) })
			require.Contains(t, log, tt.want)
		})
	}
	t.Run("any start will do", func(t *testing.T) {
		log := failure(t, func(t testing.TB) {
			starts(t, func(s dmutex.Start) (dmutex.Machine, error) {
				if m, err := ricart.New(s); err == nil {
					return m, nil
				}
				return ricart.New(dmutex.Start{Self: 1, Members: Nodes(3)})
			}, Nodes(3))
		})
		require.Equal(t, 9, strings.Count(log, "want ErrMisuse"), log)
	})
}

// The fuzz body finds each of these faults.
func TestFuzzFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		broken broken
		data   []byte
		want   string
	}{
		{
			"another error",
			broken{request: func(*broken) ([]dmutex.Message, error) { return nil, errors.New("no") }},
			[]byte{byte(request), 0},
			"request is refused by no (want dmutex: exhausted",
		},
		{
			"takes what is unlawful",
			broken{cancel: func(*broken) ([]dmutex.Message, error) { return nil, nil }},
			[]byte{byte(cancel), 0},
			"cancel is taken",
		},
		{
			"talks to itself",
			broken{request: func(b *broken) ([]dmutex.Message, error) {
				b.Machine.Request()
				return []dmutex.Message{{From: b.self, To: b.self}}, nil
			}},
			[]byte{byte(request), 0},
			"contract: 1 sends 1->1 KIND0",
		},
		{
			"forgets a request",
			broken{forget: func(*broken) (clock, known uint64, ok bool) { return 0, 0, true }},
			[]byte{byte(request), 0},
			"Forget lets",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := failure(t, func(t testing.TB) { fuzzOnce(t, tt.broken.born, Nodes(3), tt.data) })
			require.Contains(t, log, tt.want)
		})
	}
}
