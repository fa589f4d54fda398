package dmutextest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
)

// These violations occur in no weakened machine of ours. The tests of the machines
// have the other violations.
func TestExploreFinds(t *testing.T) {
	good := Config{Algorithm: ricart.New, Members: Nodes(2), Requests: []int{1}}
	for _, tt := range []struct {
		name   string
		config func(c *Config)
		kind   error
		why    string
	}{
		{
			"a crowded channel",
			func(c *Config) { c.Network.Channel = 1 },
			ErrChannel, "2 messages are in flight from 2 to 1",
		},
		{
			"messages that always go back",
			func(c *Config) { c.Algorithm = catch.born },
			ErrLivelock, "the last 2 steps may repeat forever",
		},
		{
			"a refused reply",
			func(c *Config) {
				c.Algorithm = broken{
					handle: func(b *broken, m dmutex.Message) ([]dmutex.Message, error) {
						if m.Kind == dmutex.Reply {
							return nil, dmutex.ErrPeer
						}
						return b.Machine.Handle(m)
					},
				}.born
			},
			ErrRefused, "dmutex: peer's mistake",
		},
		{
			"a message to a stranger",
			func(c *Config) {
				c.Algorithm = broken{
					request: func(b *broken) ([]dmutex.Message, error) {
						out, err := b.Machine.Request()
						return append(out, dmutex.Message{Kind: dmutex.Request, From: b.self, To: 9}), err
					},
				}.born
			},
			ErrContract, "1->9 REQUEST is not addressed to a member",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := good
			tt.config(&c)
			r, err := Explore(c)
			require.ErrorIs(t, err, tt.kind)
			require.ErrorContains(t, err, tt.why)
			require.False(t, r.Complete)
			var v *Violation
			require.ErrorAs(t, err, &v)
			require.NotContains(t, v.Script, "it does no harm")
		})
	}
}

// A group that is wrong at birth is found before its first step.
func TestExploreBirth(t *testing.T) {
	held := broken{
		phase:  func(*broken) dmutex.Phase { return dmutex.Held },
		forget: func(*broken) (clock, known uint64, ok bool) { return 0, 0, false },
	}
	heedless := func(s dmutex.Start) (dmutex.Machine, error) {
		s.Holder = dmutex.None
		return ricart.New(s)
	}
	for _, tt := range []struct {
		name      string
		algorithm dmutex.Algorithm
		holder    dmutex.NodeID
		kind      error
		why       string
	}{
		{"everybody holds", held.born, 0, ErrMutualExclusion, "1 and 2 both hold the lock at birth"},
		{"the holder does not", heedless, 2, ErrContract, "2 is born idle with fence 0, not held with fence 7"},
		{"the holder by another fence", broken{fence: func(b *broken) uint64 { return b.Machine.Fence() / 2 }}.born, 2, ErrContract, "2 is born held with fence 3"},
		{"a clone differs", broken{clone: func(b *broken) dmutex.Machine {
			return &broken{Machine: b.Machine, text: func(*broken) string { return "other" }}
		}}.born, 0, ErrContract, "the clone of"},
		{"a wrong memory", broken{forget: func(*broken) (clock, known uint64, ok bool) { return 5, 5, true }}.born, 0, ErrContract, "Forget lets"},
		{"never forgotten", broken{forget: func(*broken) (clock, known uint64, ok bool) { return 0, 0, false }}.born, 0, ErrLeftBehind, "all nodes are idle"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{Algorithm: tt.algorithm, Members: Nodes(2), Holder: tt.holder, Fence: 7}
			_, err := Explore(c)
			require.ErrorIs(t, err, tt.kind)
			require.ErrorContains(t, err, tt.why)
			var v *Violation
			require.ErrorAs(t, err, &v)
			require.Contains(t, v.Script, "\nstate\n----\nviolation: "+name(tt.kind))
			_, err = Walk(c, 1, 1)
			require.ErrorIs(t, err, tt.kind)
		})
	}
}

// A node may forget its machine whenever the machine allows it, and then go on with a
// higher clock and a higher fence.
func TestExploreForgets(t *testing.T) {
	fifo, unordered := Network{}, Network{Unordered: true}
	var rows []string
	for _, tt := range []struct {
		name              string
		algorithm         dmutex.Algorithm
		network           Network
		requests, cancels []int
		forgets           []int
	}{
		{"ricart", ricart.New, unordered, []int{2, 2}, []int{1}, []int{2}},
		{"ricart", ricart.New, unordered, []int{1, 1, 1}, nil, []int{1, 1, 0}},
		{"ricart.Carvalho", ricart.Carvalho, unordered, []int{2, 2}, []int{1}, []int{2}},
		{"ricart.Carvalho", ricart.Carvalho, unordered, []int{2, 1, 1}, nil, []int{1}}, // forgets permissions too
		{"central", central.New, unordered, []int{2, 2}, []int{1}, []int{2}},
		{"central", central.New, unordered, []int{1, 1, 1}, []int{1}, []int{1}},
		{"central.Witnessed", central.Witnessed, unordered, []int{2, 2}, []int{1}, []int{2}},
		{"central.Witnessed", central.Witnessed, unordered, []int{1, 1, 1}, nil, []int{1}},
		{"ring", ring.New, fifo, []int{2, 2}, []int{1}, []int{2}},
		{"ring", ring.New, fifo, []int{1, 1, 1}, nil, []int{1}},
		{"lamport", lamport.New, fifo, []int{2, 2}, []int{1}, []int{2}},
		{"lamport", lamport.New, fifo, []int{1, 1, 0}, nil, []int{1, 0, 0}},
		{"lamport.OmitReplies", lamport.OmitReplies, fifo, []int{2, 2}, []int{1}, []int{2}},
		{"maekawa", maekawa.New, fifo, []int{2, 2}, []int{1}, []int{2}},
		{"maekawa", maekawa.New, fifo, []int{1, 1, 1}, nil, []int{1, 0, 0}},
	} {
		rows = append(rows, tt.name)
		t.Run(fmt.Sprint(tt.name, " ", len(tt.requests)), func(t *testing.T) {
			if len(tt.requests) > 2 && quicktest.On() {
				t.Skip("takes seconds; set CI=1")
			}
			c := Config{
				Algorithm: tt.algorithm, Members: Nodes(len(tt.requests)), Network: tt.network,
				Requests: tt.requests, Cancels: tt.cancels,
			}
			without, err := Explore(c)
			require.NoError(t, err)
			if quicktest.On() && without.States > 5_000 || testing.Short() && without.States > 300 {
				t.Skip("takes a moment")
			}
			c.Forgets = tt.forgets
			r, err := Explore(c)
			require.NoError(t, err)
			t.Log(r)
			require.True(t, r.Complete)
			require.Greater(t, r.States, without.States)
			require.False(t, r.Dense)
		})
	}
	require.Equal(t, []string{"suzukikasami"}, algorithms.Without(rows), "what may forget needs a row")
}

// A machine that accepts only the fence it expects does not survive a node
// that forgets.
func TestExploreForgetsFinds(t *testing.T) {
	c := Config{Members: Nodes(2), Requests: []int{1}, Algorithm: broken{
		handle: func(b *broken, m dmutex.Message) ([]dmutex.Message, error) {
			if _, fence, _ := b.Machine.Forget(); m.Fence > fence+1 {
				return nil, dmutex.ErrPeer
			}
			return b.Machine.Handle(m)
		},
	}.born}
	_, err := Explore(c)
	require.NoError(t, err)
	c.Forgets = []int{2}
	_, err = Explore(c)
	var v *Violation
	require.ErrorAs(t, err, &v)
	require.Equal(t, ErrRefused, v.Kind)
	require.Contains(t, v.Script, "\nforget ")
	require.NotContains(t, v.Script, "it does no harm")
}

func TestExploreRefuses(t *testing.T) {
	around := func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := ricart.New(s)
		return struct{ dmutex.Machine }{m}, err
	}
	for _, tt := range []struct {
		name   string
		config Config
		want   string
	}{
		{"nobody", Config{Algorithm: ricart.New}, "Config.Members is empty"},
		{"no algorithm", Config{Members: Nodes(2)}, "the Algorithm is nil"},
		{"a node twice", Config{Algorithm: ricart.New, Members: []dmutex.NodeID{1, 1}}, "names a node twice"},
		{"one number too few", Config{Algorithm: ricart.New, Members: Nodes(3), Requests: []int{1, 2}}, "2 numbers for 3 members"},
		{"too often", Config{Algorithm: ricart.New, Members: Nodes(2), Cancels: []int{256}}, "256 times: a node may do each thing 0 to 255 times"},
		{"less than never", Config{Algorithm: ricart.New, Members: Nodes(2), Ticks: []int{-1}}, "-1 times"},
		{"negative losses", Config{Algorithm: ricart.New, Members: Nodes(2), Network: Network{Losses: -1}}, "from 0 to 65535"},
		{"nothing", Config{Algorithm: func(dmutex.Start) (dmutex.Machine, error) { return nil, nil }, Members: Nodes(2)}, "neither a machine nor an error"},
		{"a clone without what is around it", Config{Algorithm: around, Members: Nodes(2)}, "the Clone of a struct { dmutex.Machine } is a *ricart.machine: a machine around another needs a Clone of its own"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Explore(tt.config)
			require.ErrorIs(t, err, dmutex.ErrMisuse)
			require.ErrorContains(t, err, tt.want)
			_, err = Walk(tt.config, 1, 1)
			require.ErrorIs(t, err, dmutex.ErrMisuse)
		})
	}
}

// An exploration that is stopped early claims nothing.
func TestExploreCut(t *testing.T) {
	var seen []Report
	c := Config{
		Algorithm: ricart.New,
		Members:   Nodes(3),
		Requests:  []int{2},
		Network:   Network{Unordered: true},
		MaxStates: 80_000,
		Progress: func(r Report) bool {
			seen = append(seen, r)
			return true
		},
	}
	r, err := Explore(c)
	require.NoError(t, err)
	require.False(t, r.Complete)
	require.GreaterOrEqual(t, r.States, 80_000)
	require.Less(t, r.States, 80_100)
	require.NotContains(t, r.String(), "complete")
	require.NotContains(t, r.String(), "messages a run")
	require.Len(t, seen, 2, "at the beginning, and after 65536 states")
	require.Less(t, seen[0].States, seen[1].States)

	c.Progress = func(Report) bool { return false }
	r, err = Explore(c)
	require.NoError(t, err)
	require.Equal(t, seen[0], r, "at the beginning")
}

// A lazy machine queues its messages, and handles one at each tick.
type lazy struct {
	dmutex.Machine
	inbox []dmutex.Message
}

func (l *lazy) Handle(m dmutex.Message) ([]dmutex.Message, error) {
	l.inbox = append(l.inbox, m)
	return nil, nil
}

func (l *lazy) Tick() ([]dmutex.Message, error) {
	if len(l.inbox) == 0 {
		return nil, nil
	}
	m := l.inbox[0]
	l.inbox = l.inbox[1:]
	return l.Machine.Handle(m)
}

func (l *lazy) Forget() (clock, known uint64, ok bool) {
	clock, known, ok = l.Machine.Forget()
	return clock, known, ok && len(l.inbox) == 0
}

func (l *lazy) AppendText(b []byte) ([]byte, error) {
	b, err := l.Machine.AppendText(b)
	for _, m := range l.inbox {
		b = append(append(b, " has "...), m.String()...)
	}
	return b, err
}

func (l *lazy) Clone() dmutex.Machine {
	return &lazy{l.Machine.Clone(), append([]dmutex.Message(nil), l.inbox...)}
}

// Ticks are limited, except when nothing else can happen.
func TestExploreTicks(t *testing.T) {
	c := Config{
		Algorithm: func(s dmutex.Start) (dmutex.Machine, error) {
			m, err := ricart.New(s)
			return &lazy{Machine: m}, err
		},
		Members:  Nodes(2),
		Requests: []int{2},
		Cancels:  []int{1},
	}
	states := 0
	for _, ticks := range [][]int{nil, {1}, {9}} {
		c.Ticks = ticks
		r, err := Explore(c)
		require.NoError(t, err)
		require.True(t, r.Complete)
		require.Greater(t, r.States, states)
		states = r.States
	}
	_, err := Walk(c, 1, 20)
	require.NoError(t, err)
}

func TestWalkSeed(t *testing.T) {
	c := Config{Algorithm: ricart.New, Members: Nodes(4), Requests: []int{3}, Cancels: []int{2}, Network: Network{Unordered: true}}
	first, err := Walk(c, 7, 10)
	require.NoError(t, err)
	again, err := Walk(c, 7, 10)
	require.NoError(t, err)
	require.Equal(t, first, again)
	other, err := Walk(c, 8, 10)
	require.NoError(t, err)
	require.NotEqual(t, first, other)
}

func TestWalkEnds(t *testing.T) {
	_, err := Walk(Config{Algorithm: catch.born, Members: Nodes(2), Requests: []int{1}}, 1, 1)
	require.ErrorIs(t, err, ErrLivelock)
	require.ErrorContains(t, err, "steps (seed 1)")
}

// The violation of a run has the seed of the run, and a script that runs again.
func TestWalkFails(t *testing.T) {
	c := Config{Algorithm: ricart.New, Members: Nodes(4), Requests: []int{3}, Network: Network{Unordered: true, Losses: 1}}
	_, err := Walk(c, 7, 100)
	require.ErrorIs(t, err, ErrDeadlock)
	var v *Violation
	require.ErrorAs(t, err, &v)
	require.Contains(t, v.Error(), "(seed 7)")
	again, err := RunScript(c.Algorithm, v.Script)
	require.NoError(t, err)
	require.Equal(t, v.Script, again)
	require.Contains(t, again, "violation: deadlock")
}

func TestRunScriptRefuses(t *testing.T) {
	const group = "group 1 2\n\n"
	for _, tt := range []struct{ script, want string }{
		{"request 1", `line 1: "request 1": a script begins with a group`},
		{"group\n\nstate", "a script begins with a group"},
		{"group 1 x", "invalid syntax"},
		{"group 1@x 2", "invalid syntax"},
		{"group 1 1\n\nstate", "names a node twice"},
		{"group 1 2\nnetwork lossy", `network "lossy": want fifo or unordered`},
		{"group 1 2\nholder x", "invalid syntax"},
		{"group 1 2\nfence -1", "invalid syntax"},
		{group + "dance 1", `line 3: "dance 1": there is no such command`},
		{group + "request", "invalid syntax"},
		{group + "request 3", "there is no such node"},
		{group + "state 3", "there is no such node"},
		{group + "request 1\nforget 1", "does not let itself be forgotten"},
		{group + "tick 1", "this machine has no Tick"},
		{group + "deliver 1->2", "no such message is on its way"},
		{group + "request 1\nfence 3", "the group is at work already"},
		{group + "request 1\nlose 1->2", "the network is fifo"},
		{group + "request 1\nduplicate 1->2", "the network is fifo"},
		{
			group + "request 1\nrequest 2\ndeliver 2->1\ndeliver 1->2\ndeliver 2->1\nrelease 1\nrequest 1\ndeliver 1->2 REQUEST",
			"the network is fifo, and 1->2 REPLY attempt=1 fence=1 was sent before",
		},
	} {
		_, err := RunScript(ricart.New, tt.script)
		require.ErrorIs(t, err, dmutex.ErrMisuse, tt.script)
		require.ErrorContains(t, err, tt.want, tt.script)
	}
}

// A prefix names the oldest message that begins with it, unless a message is named
// in full.
func TestRunScriptFindsMessage(t *testing.T) {
	const begin = "group 1 2\nnetwork unordered\nrequest 2\ndeliver 2->1\ndeliver 1->2\nrequest 1\ndeliver 1->2\nrelease 2\nrequest 2\n"
	got, err := RunScript(ricart.New, begin+"state")
	require.NoError(t, err)
	require.Contains(t, got, "on its way 2->1 REPLY attempt=2 fence=1\non its way 2->1 REQUEST attempt=3 fence=1\n")
	for words, want := range map[string]string{
		"2->1":                           "1 held fence=2\n",
		"2->1 REQUEST":                   "on its way 2->1 REPLY attempt=2 fence=1\n",
		"2->1 REQUEST attempt=3 fence=1": "on its way 2->1 REPLY attempt=2 fence=1\n",
	} {
		got, err := RunScript(ricart.New, begin+"deliver "+words+"\nstate")
		require.NoError(t, err)
		require.Contains(t, got, want, words)
	}
}

// If the texts of machines leave something out, a script still shows what each machine
// does, not what another machine of equal text did.
func TestRunScriptTextless(t *testing.T) {
	mute := broken{text: func(*broken) string { return "a machine" }}
	got, err := RunScript(mute.born, "group 1 2\n\nrequest 1\ndeliver all\nrelease 1")
	require.NoError(t, err)
	require.Contains(t, got, "1 waiting\n")
	require.Contains(t, got, "1 held fence=1\n1 idle\n")
}

// A script replayed twice is the same, no matter what output it had.
func TestRunScriptSettles(t *testing.T) {
	const script = `# a conversation
group 1 2   # two

request 1
deliver all
----
nonsense
more of it

# the end
release 1`
	first, err := RunScript(ricart.New, strings.Replace(script, "   # two", "", 1))
	require.NoError(t, err)
	require.NotContains(t, first, "nonsense")
	require.Contains(t, first, "1 held fence=1\n\n# the end\nrelease 1\n----\n1 idle\n")
	again, err := RunScript(ricart.New, first)
	require.NoError(t, err)
	require.Equal(t, first, again)
}

// "deliver all" ends even if the machines always answer.
func TestRunScriptEnds(t *testing.T) {
	got, err := RunScript(catch.born, "group 1 2\n\nrequest 1\ndeliver all\n\nstate")
	require.NoError(t, err)
	require.Contains(t, got, "\nviolation: livelock: the run has not ended after 10000 messages\n\nstate\n")
	require.Less(t, strings.Count(got, "\n"), 120)
}

func TestGoldenFails(t *testing.T) {
	log := failure(t, func(t testing.TB) { goldentest.Compare(t, "testdata/nowhere.txt", "x") })
	require.Contains(t, log, "-update")
	log = failure(t, func(t testing.TB) { goldentest.Compare(t, "doc.go", "x") })
	require.Contains(t, log, "doc.go has changed")
	log = failure(t, func(t testing.TB) { TestScript(t, ricart.New, "testdata/nowhere.txt") })
	require.Contains(t, log, "nowhere.txt")
	log = failure(t, func(t testing.TB) {
		Refute(t, Config{Algorithm: ricart.New, Members: Nodes(2), Requests: []int{1}}, ErrDeadlock, "testdata/nowhere.txt")
	})
	require.Contains(t, log, "want a violation: dmutextest: deadlock; got <nil>")
	require.True(t, errors.Is(&Violation{Kind: ErrChannel}, ErrChannel))
}
