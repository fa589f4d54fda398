package byhand

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

func algorithm(t *testing.T, name string) Run {
	a, err := Find(name)
	require.NoError(t, err)
	r, err := New(a, 3, false)
	require.NoError(t, err)
	return r
}

// A script is read as dmutextest.RunScript reads it, and written as that writes it.
func TestScript(t *testing.T) {
	for _, c := range []struct{ name, algorithm, script, want string }{
		{"a request", "ricart", "group 1 2\n\nrequest 1\ndeliver all\n", `group 1 2
network fifo

request 1
----
1 waiting
1->2 REQUEST attempt=1

deliver 1->2 REQUEST attempt=1
----
2->1 REPLY attempt=1

deliver 2->1 REPLY attempt=1
----
1 held fence=1
`},
		{"a beginning, comments and output", "central", "# what\ngroup 3 1@7 2\nholder 1\nhome 2\nfence 4\nnetwork unordered, 3 losses\n\n# now\nrequest 3\nstate\n----\nnonsense\n\n# and\n# then\nlose 3->2 REQ\n",
			"error: line 16: \"lose 3->2 REQ\": no such message is in flight"},
		{"what is lost and kept", "central", "group 3 1@7 2\nholder 1\nhome 2\nfence 4\nnetwork unordered, 3 losses\n\n# now\nrequest 3\nstate\n----\nnonsense\n\n# and\n# then\nduplicate 3->2 REQUEST\nlose 3->2\n", `group 3 1@7 2
holder 1
home 2
fence 4
network unordered, 1 duplicate, 1 loss

# now
request 3
----
3 waiting
3->2 REQUEST attempt=2 fence=4

# and then
duplicate 3->2 REQUEST attempt=2 fence=4
----

lose 3->2 REQUEST attempt=2 fence=4
----
`},
		{"shared", "lamport", "group 1 2\nsharers 1 2\n\nrelease 1\n", `group 1 2
sharers 1 2
network fifo

release 1
----
1 idle
1->2 RELEASE attempt=1 clock=2
`},
		{"a crash", "ricart", "group 1 2\n\nrequest 1\n# crash 2\n", `group 1 2
network fifo, 1 loss

request 1
----
1 waiting
1->2 REQUEST attempt=1

# crash 2
lose 1->2 REQUEST attempt=1
----
violation: deadlock: 1 waits, no node holds the lock and no message is in flight
`},
		{"what a machine refuses", "ricart", "group 1 2\n\nrelease 1\n", `group 1 2
network fifo

release 1
----
refused: dmutex: misuse: Release while idle
`},
		{"forgotten", "ricart", "group 1 2\n\nforget 1\nrequest 1\n", `group 1 2
network fifo

forget 1
----

request 1
----
1 waiting
1->2 REQUEST attempt=2 fence=1
`},
		{"no group", "ricart", "request 1\n", `error: line 1: "request 1": a run begins with a group of 1 to 9 nodes, such as "group 1 2 3"`},
		{"nothing", "ricart", "\n", `error: a run begins with a group of 1 to 9 nodes, such as "group 1 2 3"`},
		{"too many nodes", "ricart", "group 1 2 3 4 5 6 7 8 9 10\n", `error: line 1: "group 1 2 3 4 5 6 7 8 9 10": a run begins with a group of 1 to 9 nodes, such as "group 1 2 3"`},
		{"a node that is not there", "ricart", "group 1 2\nrequest 7\n", `error: line 2: "request 7": there is no node 7`},
		{"a word", "ricart", "group 1 2\nrequset 1\n", `error: line 2: "requset 1": there is no such command`},
		{"a late holder", "ricart", "group 1 2\nrequest 1\nholder 2\n", `error: line 3: "holder 2": the group is at work already`},
		{"a holder that is not there", "ricart", "group 1 2\nholder 3\n", `error: dmutex: misuse: Start.Holder 3 is not among Start.Members`},
		{"a network", "ricart", "group 1 2\nnetwork best\n", `error: line 2: "network best": dmutex: misuse: network "best": want fifo or unordered, and perhaps ", 2 duplicates", ", 1 loss" and ", channel 8"`},
		{"no sharer", "maekawa", "group 1 2\nshare 1\n", `error: line 2: "share 1": this machine does not share`},
		{"no ticker", "maekawa", "group 1 2\ntick 1\n", `error: line 2: "tick 1": this machine has no Tick`},
		{"overtaking", "ricart", "group 1 2\nrequest 1\ncancel 1\ndeliver 1->2\nforget 2\n", "error: line 5: \"forget 2\""},
		{"too long", "ricart", "group 1 2\n" + strings.Repeat("request 1\ndeliver all\nrelease 1\n", 101), fmt.Sprintf(`error: line 302: "request 1": a run has at most %d steps: begin again`, mostSteps)},
	} {
		got, err := func() (string, error) {
			r, err := Read(algorithm(t, c.algorithm).Algorithm, c.script)
			if err != nil {
				return "", err
			}
			r.done = len(r.steps)
			return r.Script()
		}()
		if err != nil {
			got = "error: " + err.Error()
		}
		if c.name == "overtaking" && err == nil {
			continue
		}
		require.Equal(t, c.want, got, c.name)
	}
}

// The letters of an address are those of the steps.
func TestEncode(t *testing.T) {
	var all []step
	for i, v := range verbs {
		all = append(all, step{do: v.do, at: uint64(i * 100)})
	}
	text := encode(all)
	require.Equal(t, "r0s100c200e300t400f500x600d700u800l900", text)
	got, err := decode(text)
	require.NoError(t, err)
	require.Equal(t, all, got)
	for _, wrong := range []string{"r", "1", "rr1", "q1", "r-1", "r99999999999999999999", "r1 r2", strings.Repeat("r1", mostSteps+1)} {
		_, err := decode(wrong)
		require.Error(t, err, wrong)
	}

	g, err := parseSetup("group 3 1@7 2;holder 1;home 2;fence 4;network unordered, 2 losses")
	require.NoError(t, err)
	require.Equal(t, "group 3 1@7 2;holder 1;home 2;fence 4;network unordered", g.String())
	for _, wrong := range []string{"", "group", "group x", "group 1;request 1", "network fifo", "group 1;group 2", "group 1 2;sharers 1 x", "group 1@x", "group 1;fence x", "group 1;holder x"} {
		_, err := parseSetup(wrong)
		require.Error(t, err, wrong)
	}
}

// In random runs of every algorithm the machines, the messages in flight and the traces are those of dmutextest,
// which runs the script of the run.
func TestSameAsScript(t *testing.T) {
	for _, a := range Algorithms() {
		for seed := range uint64(8) {
			chance := rand.New(rand.NewPCG(seed, 0))
			r, err := New(a, 2+int(seed%3), seed%2 == 0 && a.Name != "ring" && !strings.HasPrefix(a.Name, "lamport"))
			require.NoError(t, err)
			w, err := r.world()
			require.NoError(t, err)
			for range 60 {
				all := w.options()
				for _, n := range w.nodes {
					id := uint64(n.id)
					if n.machine.Phase() == dmutex.Waiting {
						all = append(all, step{do: "cancel", at: id})
					}
					if _, ok := n.machine.(dmutex.Sharer); ok && n.machine.Phase() == dmutex.Idle && !n.machine.Pending() {
						all = append(all, step{do: "share", at: id})
					}
				}
				if len(all) == 0 {
					break
				}
				s := all[chance.IntN(len(all))]
				require.NoError(t, w.do(s))
				if r, err = r.with(s); err != nil || len(w.clash()) > 0 {
					break // what a script does after a violation is its own affair
				}
			}
			script, err := dmutextest.RunScript(a.New, w.golden()+"\nstate\n")
			require.NoError(t, err)
			if broken(script) != "" {
				require.Contains(t, []string{"broken", "maekawa-plain"}, a.Name, script)
				continue
			}
			var state strings.Builder
			for _, n := range w.nodes {
				text, _ := n.machine.AppendText(nil)
				fmt.Fprintf(&state, "%s\n", text)
			}
			for _, f := range w.wire {
				fmt.Fprintf(&state, "on its way %v\n", f)
			}
			require.True(t, strings.HasSuffix(script, "\nstate\n----\n"+state.String()), "%s: %s\n%s", a.Name, script, state.String())

			traces, err := dmutextest.TraceScript(a.New, script)
			require.NoError(t, err)
			for i, want := range traces {
				require.Equal(t, want.Events, w.traces[i].Events, "%s, node %d of\n%s", a.Name, i+1, script)
			}

			again, err := Read(a, script)
			require.NoError(t, err)
			again.done = len(again.steps)
			reread, err := again.Script()
			require.NoError(t, err)
			require.Equal(t, w.golden(), reread)
		}
	}
}

// The deadlock of the textbooks: with the rules of the paper's section 3 alone all nodes wait, and with FAILED, INQUIRE and
// YIELD all are served.
func TestDeadlock(t *testing.T) {
	for _, c := range []struct {
		algorithm string
		steps     int // that can be done
	}{{"maekawa-plain", 7}, {"maekawa", 20}} {
		text := deadlock
		if c.algorithm == "maekawa-plain" {
			text, _, _ = strings.Cut(text, "deliver 1->2 FAILED")
		}
		r, err := Read(algorithm(t, c.algorithm).Algorithm, text)
		require.NoError(t, err)
		r.done = len(r.steps)
		w, err := r.world()
		require.NoError(t, err)
		require.Len(t, r.steps, c.steps)
		for k, s := range r.steps {
			require.NotEmpty(t, s.note, "step %d", k+1)
		}
		require.NotEmpty(t, r.closing, "what to see at the end")
		waits, _ := w.vain()
		require.Equal(t, c.algorithm == "maekawa-plain", waits != dmutex.None)
		require.Equal(t, c.algorithm == "maekawa-plain", broken(w.golden()) != "")
	}
}

// Random steps find the errors of the machines that are wrong on purpose, and none of the others.
func TestTrouble(t *testing.T) {
	for _, a := range Algorithms() {
		r, err := New(a, 3, false)
		require.NoError(t, err)
		w, err := r.world()
		require.NoError(t, err)
		found := w.trouble(rand.New(rand.NewPCG(1, 0)))
		wrong := a.Name == "broken" || a.Name == "maekawa-plain"
		require.Equal(t, wrong, found != nil, a.Name)
		for _, s := range found {
			require.NoError(t, w.do(s))
		}
		waits, _ := w.vain()
		require.Equal(t, wrong, waits != dmutex.None || len(w.clash()) > 0, a.Name)
	}
	r := algorithm(t, "ricart")
	r.steps, r.done = []step{{do: crash, at: 2}}, 1
	w, err := r.world()
	require.NoError(t, err)
	require.NotNil(t, w.trouble(rand.New(rand.NewPCG(1, 0))), "the reply of a node that has crashed never comes")
}

// A step that cannot be taken is refused.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		done []step
		do   step
		said string
	}{
		{"a message that is not there", nil, step{do: deliver}, "no such message is in flight"},
		{"a large number", nil, step{do: lose, at: 1 << 63}, "no such message is in flight"},
		{"a node that is not there", nil, step{do: "request", at: 9}, "there is no node 9"},
		{"a crashed node", []step{{do: crash, at: 2}}, step{do: "request", at: 2}, "node 2 has crashed"},
		{"a crashed node again", []step{{do: crash, at: 2}}, step{do: crash, at: 2}, "node 2 has crashed"},
		{"a younger message", []step{{do: "request", at: 1}, {do: "cancel", at: 1}, {do: "request", at: 1}, {do: deliver, at: 1}, {do: deliver, at: 1}}, step{do: "forget", at: 1}, "this machine does not let itself be forgotten"},
	} {
		r := algorithm(t, "lamport")
		r.steps, r.done = c.done, len(c.done)
		w, err := r.world()
		require.NoError(t, err, c.name)
		before := w.golden()
		require.EqualError(t, w.do(c.do), c.said, c.name)
		require.Equal(t, before, w.golden(), c.name)
	}
}
