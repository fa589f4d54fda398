package draw_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport/memlink"
)

// record makes TestFiguresOfNodes record new runs.
var record = flag.Bool("record", false, "record docs/figures/restart and failover anew")

// The figures of a rolling restart and of a failover are drawn from recorded traces, one for
// each process. The test replays the traces, too.
func TestFiguresOfNodes(t *testing.T) {
	for _, f := range []struct {
		name      string
		files     int
		algorithm dmutex.Algorithm
		record    func(t *testing.T) map[string]*bytes.Buffer
		title     string
	}{
		{"restart", 6, ricart.New, rollingRestart, "A rolling restart: N1 is restarted, N2 crashes and returns, N3 is restarted"},
		{"failover", 4, central.New, failover, "A crash and its failover: N2 crashes while it holds the lock, and N4 joins"},
	} {
		t.Run(f.name, func(t *testing.T) {
			dir := "../../../../docs/figures/" + f.name
			if *record {
				require.NoError(t, os.MkdirAll(dir, 0o755))
				for name, file := range f.record(t) {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name+".trace"), file.Bytes(), 0o644))
				}
			}
			files, err := filepath.Glob(dir + "/*.trace")
			require.NoError(t, err)
			require.Len(t, files, f.files)
			var traces []*trace.Trace
			for _, name := range files {
				file, err := os.Open(name)
				require.NoError(t, err)
				tr, err := trace.Read(name, file)
				require.NoError(t, err)
				require.NoError(t, file.Close())
				_, err = dmutextest.Replay(tr, f.algorithm)
				require.NoError(t, err)
				traces = append(traces, tr)
			}
			verdict, err := draw.Judge(traces)
			require.NoError(t, err)
			require.Empty(t, verdict.Faults)
			d, err := draw.New(traces, draw.Options{Title: f.title})
			require.NoError(t, err)
			goldentest.Compare(t, "../../../../docs/figures/"+f.name+".svg", string(d.SVG()))
		})
	}
}

// acquire lets a node acquire the lock of a figure, and waits for 300 ms.
func acquire(t *testing.T, n *node.Node) <-chan lock.Held {
	c := make(chan lock.Held, 1)
	go func() {
		h, err := n.Mutex("invoices").Acquire(t.Context())
		require.NoError(t, err)
		c <- h
	}()
	time.Sleep(300 * time.Millisecond)
	return c
}

// crash ends a node that is cut off from the others. It removes the end from the node's trace.
func crash(t *testing.T, n *node.Node, file *bytes.Buffer) {
	synctest.Wait()
	before := file.Len()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, n.Close(gone))
	synctest.Wait()
	file.Truncate(before)
}

// failover records the run of the figure: N2 crashes while it holds the lock and N3 waits for
// it; then N4 joins, and N1 leaves.
func failover(t *testing.T) (files map[string]*bytes.Buffer) {
	files = make(map[string]*bytes.Buffer)
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{Seed: 1, MinDelay: 5 * time.Millisecond, MaxDelay: 10 * time.Millisecond})
		require.NoError(t, err)
		var record store.Memory
		open := func() *node.Node {
			file := new(bytes.Buffer)
			n, err := node.Open(t.Context(), &record, net.Link(dmutex.None), node.Config{Name: fmt.Sprint("web-", len(files)+1), Lease: 2 * time.Second, Trace: trace.NewRecorder(file)})
			require.NoError(t, err)
			require.NoError(t, n.Ready(t.Context()))
			time.Sleep(200 * time.Millisecond)
			files[n.Self().String()] = file
			return n
		}
		n1, n2, n3 := open(), open(), open()
		<-acquire(t, n2)
		next := acquire(t, n3)
		for _, id := range []dmutex.NodeID{1, 3} {
			net.Cut(2, id)
			net.Cut(id, 2)
		}
		crash(t, n2, files["2"])
		h := <-next
		time.Sleep(300 * time.Millisecond)
		n4 := open()
		last := acquire(t, n4)
		require.NoError(t, h.Release())
		h = <-last
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, n1.Close(t.Context()))
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, h.Release())
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		for id, file := range files { // the end of the group is not in the figure
			files[id] = bytes.NewBuffer(bytes.Clone(file.Bytes()))
		}
		for _, n := range []*node.Node{n3, n4} {
			require.NoError(t, n.Close(t.Context()))
		}
	})
	return files
}

// rollingRestart records the run of the figure. N3 holds the lock while N1 is
// restarted and N2 waits; N2 has the lock when it crashes, and N1 waits for it.
func rollingRestart(t *testing.T) (files map[string]*bytes.Buffer) {
	files = make(map[string]*bytes.Buffer)
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{Seed: 1, MinDelay: 5 * time.Millisecond, MaxDelay: 10 * time.Millisecond})
		require.NoError(t, err)
		nodes := make(map[dmutex.NodeID]*node.Node)
		open := func(id dmutex.NodeID, life string) {
			file := new(bytes.Buffer)
			files[id.String()+life] = file
			nodes[id], err = node.OpenStrict(t.Context(), id, []dmutex.NodeID{1, 2, 3}, net.Link(id), node.Config{
				Name: "web-" + id.String(), Algorithm: ricart.New, Trace: trace.NewRecorder(file),
			})
			require.NoError(t, err)
		}
		for id := range dmutex.NodeID(3) {
			open(id+1, "a")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)

		first := <-acquire(t, nodes[3])
		second := acquire(t, nodes[2])
		require.NoError(t, nodes[1].Close(t.Context()))
		time.Sleep(2 * time.Second)
		open(1, "b")
		time.Sleep(2 * time.Second)
		require.NoError(t, first.Release())
		<-second
		third := acquire(t, nodes[1])

		for _, id := range []dmutex.NodeID{1, 3} {
			net.Cut(2, id)
		}
		crash(t, nodes[2], files["2a"])
		net.Heal()
		time.Sleep(2 * time.Second)
		open(2, "b")
		h := <-third
		time.Sleep(time.Second)
		require.NoError(t, h.Release())
		time.Sleep(300 * time.Millisecond)

		require.NoError(t, nodes[3].Close(t.Context()))
		time.Sleep(2 * time.Second)
		open(3, "b")
		time.Sleep(2 * time.Second)
		require.NoError(t, (<-acquire(t, nodes[3])).Release())
		time.Sleep(time.Second)
		synctest.Wait()
		for name, file := range files { // the end of the group is not in the figure
			files[name] = bytes.NewBuffer(bytes.Clone(file.Bytes()))
		}
		for _, n := range nodes {
			require.NoError(t, n.Close(t.Context()))
		}
	})
	return files
}

// The figures of docs/figures.md are drawn from golden scripts; -update draws
// them again.
func TestFigures(t *testing.T) {
	arbiters := [][]dmutex.NodeID{{4, 5}, {5, 6}, {6, 4}}
	for _, f := range []struct {
		name      string
		algorithm dmutex.Algorithm
		script    string
		title     string
	}{
		{"lamport", lamport.New, "../../../../docs/figures/lamport.txt", "Lamport: two sites ask at the same time"},
		{"ricart", ricart.New, "../../../../ricart/testdata/textbook.txt", "Ricart and Agrawala: N32 is inside when N12 and N80 ask"},
		{
			"maekawa", maekawa.With(func(site dmutex.NodeID) []dmutex.NodeID { return arbiters[(site-1)%3] }), "../../../../docs/figures/maekawa.txt",
			"Maekawa: a deadlock of three, and how it is resolved",
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			dmutextest.TestScript(t, f.algorithm, f.script)
			script, err := os.ReadFile(f.script)
			require.NoError(t, err)
			traces, err := dmutextest.TraceScript(f.algorithm, string(script))
			require.NoError(t, err)
			d, err := draw.New(traces, draw.Options{Title: f.title})
			require.NoError(t, err)
			goldentest.Compare(t, "../../../../docs/figures/"+f.name+".svg", string(d.SVG()))
		})
	}
}
