package trace_test

import (
	"bytes"
	"context"
	"errors"
	"github.com/dmutex/dmutex/dmutextest"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace"
)

var header = trace.Header{
	Self: 2, Members: []dmutex.NodeID{1, 2, 3}, Name: "Büro 7", Group: `a "group"`, Algorithm: "ricart 2 idle", Life: 1<<64 - 1, Opened: -5,
}

// events have every field in use, and names that are hard to write.
func events() []trace.Event {
	reply := dmutex.Message{Kind: dmutex.Reply, From: 3, To: 2, Attempt: 1, Clock: 1<<64 - 1, Fence: 1 << 32, Numbers: []uint64{0, 7}, Nodes: []dmutex.NodeID{3, 1}}
	request := dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 1}
	return []trace.Event{
		{Time: -1, What: trace.Met, Peer: 1, Life: 9},
		{What: trace.Ready},
		{What: trace.Born, Lock: "x", Clock: 3, Known: 5, Limit: 9, Holder: 1, Home: 2, Fence: 4},
		{Time: 5, What: trace.Request, Lock: "x", Out: []trace.Message{{Seq: 1, Message: request}, {Seq: 0, Message: request}}, Phase: dmutex.Waiting},
		{Time: 6, What: trace.Handle, Lock: "x", In: trace.Message{Seq: 4, Message: reply}, Phase: dmutex.Held, Fence: 5},
		{Time: 6, What: trace.Release, Lock: "\xff\n", Err: "not\theld \"\\"},
		{Time: 7, What: trace.Forget, Lock: "<é>\u2028\x7f"},
		{Time: 7, What: trace.View, Peer: 2, Life: 5, N: 1<<42 - 1, Members: []dmutex.NodeID{1, 2}},
		{Time: 7, What: trace.Trouble, Err: "why"},
		{Time: 7, What: trace.Dead, Peer: 3, N: 1},
		{Time: 7, What: trace.Lose, Lock: "x", In: trace.Message{Seq: 9, Message: dmutex.Message{Kind: dmutex.Reply, From: 1, To: 2, Attempt: 1}}},
		{Time: 7, What: trace.Waits, Lock: "x", Members: []dmutex.NodeID{3}},
		{Time: 8, What: trace.Left, Peer: 3},
		{Time: 1<<63 - 1, What: trace.Gap, N: 1},
	}
}

func text(t testing.TB, tr trace.Trace) string {
	var b bytes.Buffer
	require.NoError(t, tr.Write(&b))
	return b.String()
}

func TestWriteRead(t *testing.T) {
	want := trace.Trace{Header: header, Events: events()}
	file := text(t, want)
	got, err := trace.Read("f", strings.NewReader(file))
	require.NoError(t, err)
	for i := range got.Events {
		require.Equal(t, i+2, got.Events[i].Line)
		got.Events[i].Line = 0
	}
	require.Equal(t, want.Header, got.Header)
	require.Equal(t, want.Events, got.Events)

	// If a process ended in the middle of a line, all other lines are read.
	for cut := strings.Index(file, "\n") + 1; cut < len(file); cut++ {
		tr, err := trace.Read("f", strings.NewReader(file[:cut]))
		require.NoError(t, err)
		require.Equal(t, file[cut-1] != '\n', tr.Cut)
		require.Len(t, tr.Events, strings.Count(file[:cut], "\n")-1)
	}
	_, err = trace.Read("f", strings.NewReader(file[:20]))
	require.ErrorIs(t, err, trace.ErrFormat)
}

// A file that no Writer wrote is refused, with file and line.
func TestRefused(t *testing.T) {
	first := text(t, trace.Trace{Header: header})
	for _, tt := range []struct{ line, why string }{
		{``, "f:2: trace: not a trace: unexpected end"},
		{`{}`, "is unknown"},
		{strings.TrimSuffix(first, "\n"), "each life of a node has a file of its own"},
		{`{"t":1,"do":"dance"}`, `the event "dance" is unknown`},
		{`{"t":1,"do":"stray","peer":3,"n":1}`, `the event "stray" is unknown`},
		{`{"t":1,"do":"stop","lock":"x","err":"why"}`, `the event "stop" is unknown`},
		{`{"t":1,"do":"view","n":7,"members":[2,4]}`, "a member that the group does not have"},
		{`{"t":1,"do":"view","peer":3,"n":7,"members":[2,3]}`, "another number than in the header"},
		{`{"t":1,"do":"ready","lock":"x"}`, "lock"},
		{`{"t":1,"do":"forget"}`, "lock"},
		{`{"t":1,"do":"ready","more":1}`, `as it would be written: {"t":1,"do":"ready"}`},
		{`{"do":"ready","t":1}`, "as it would be written"},
		{`{"t":1,"t":1,"do":"ready"}`, "as it would be written"},
		{`{"t":1, "do":"ready"}`, "as it would be written"},
		{`{"t":1,"do":"ready"} `, "as it would be written"},
		{`{"t":1,"do":"ready","peer":-1}`, "peer"},
		{`{"t":1e3,"do":"ready"}`, "t of type int64"},
		{`{"t":1,"do":"request","lock":"x"}`, "as it would be written"}, // no phase
		{`{"t":1,"do":"request","lock":"x","phase":"asleep"}`, "as it would be written"},
		{`{"t":1,"do":"request","phase":"idle","hex":"78"}`, "UTF-8"},
		{`{"t":1,"do":"request","lock":"y","phase":"idle","hex":"ff"}`, "as it would be written"},
		{`{"t":1,"do":"handle","lock":"x","phase":"idle"}`, "as it would be written"},
		{`{"t":1,"do":"handle","lock":"x","in":{"kind":"REPLY","from":4},"phase":"idle"}`, "between members"},
		{`{"t":1,"do":"handle","lock":"x","in":{"kind":"HELLO","from":1},"phase":"idle"}`, "unknown kind"},
		{`{"t":1,"do":"request","lock":"x","out":[{"kind":"REPLY","to":4}],"phase":"idle"}`, "between members"},
		{`{"t":1,"do":"request","lock":"x","out":[],"phase":"idle"}`, "as it would be written"},
		{`{"t":1,"do":"request","lock":"` + strings.Repeat("x", 1<<20) + `","phase":"idle"}`, "longer than"},
	} {
		_, err := trace.Read("f", strings.NewReader(first+tt.line+"\n"))
		require.ErrorIs(t, err, trace.ErrFormat, tt.line)
		require.ErrorContains(t, err, tt.why)
		require.ErrorContains(t, err, "f:2: ")
	}
	for _, tt := range []struct{ line, why string }{
		{``, "no header"},
		{`{"dmutex":"trace","version":1}`, "version is 1"},
		{`{"dmutex":"truce","version":5}`, "no header"},
		{`{"dmutex":"trace","version":5,"self":1,"members":[2,1]}`, "ascending"},
		{`{"dmutex":"trace","version":5,"self":1,"members":[1,1]}`, "ascending"},
		{`{"dmutex":"trace","version":5,"self":1,"members":[0,1]}`, "ascending"},
		{`{"dmutex":"trace","version":5,"self":3,"members":[1,2]}`, "not among them"},
		{`{"dmutex":"trace","version":5,"self":1}`, "not among them"},
		{`{"dmutex":"trace","version":5,"members":[1]}`, "not among them"},
		{`{"dmutex":"trace","version":5,"self":1,"members":[1],"extra":1}`, "as it would be written"},
	} {
		_, err := trace.Read("f", strings.NewReader(tt.line+"\n"))
		require.ErrorIs(t, err, trace.ErrFormat, tt.line)
		require.ErrorContains(t, err, "f:1: ")
		require.ErrorContains(t, err, tt.why)
	}
	// With a store, the number comes from a view, not from the header.
	for _, line := range []string{`{"t":1,"do":"request","lock":"x","phase":"idle"}`, `{"t":1,"do":"view","n":1,"members":[0]}`} {
		_, err := trace.Read("f", strings.NewReader(`{"dmutex":"trace","version":5}`+"\n"+line+"\n"))
		require.ErrorIs(t, err, trace.ErrFormat)
	}
	tr, err := trace.Read("f", strings.NewReader(`{"dmutex":"trace","version":5}
{"t":1,"do":"view","peer":7,"n":1,"members":[7,9]}
{"t":1,"do":"handle","lock":"x","in":{"kind":"REPLY","from":9},"out":[{"kind":"REPLY","to":9}],"phase":"idle"}
`))
	require.NoError(t, err)
	require.EqualValues(t, 7, tr.Events[1].In.To)
	require.EqualValues(t, 7, tr.Events[1].Out[0].From)

	// An error does not quote a long line in full.
	for _, line := range []string{
		`{"t":1,"do":"ready","err":"` + strings.Repeat("x", 1000) + `"} `,
		`{"t":1,"do":"ready","n":1` + strings.Repeat("0", 100_000) + `}`,
		`{"t":1,"do":"` + strings.Repeat("ä", 100_000) + `"}`,
	} {
		_, err := trace.Read("f", strings.NewReader(first+line+"\n"))
		require.ErrorIs(t, err, trace.ErrFormat)
		require.Less(t, len(err.Error()), 600)
		require.True(t, utf8.ValidString(err.Error()))
	}
	_, err = trace.Read("f", io.MultiReader(strings.NewReader(first), failing{}))
	require.ErrorContains(t, err, "f: on fire")
}

type failing struct{}

func (failing) Read([]byte) (int, error)  { return 0, errors.New("on fire") }
func (failing) Write([]byte) (int, error) { return 0, errors.New("on fire") }

// An event that is too long to be read is not written.
func TestTooLong(t *testing.T) {
	long := trace.Event{What: trace.Request, Lock: strings.Repeat("x", 1<<20)}
	var b bytes.Buffer
	whole := trace.Trace{Header: header, Events: []trace.Event{long}}
	require.ErrorIs(t, whole.Write(&b), dmutex.ErrMisuse)

	b.Reset()
	r := trace.NewRecorder(&b)
	require.NoError(t, r.Open(header))
	r.Record(&long)
	r.Record(&trace.Event{Time: 4, What: trace.Ready})
	require.NoError(t, r.Flush(t.Context()))
	tr, err := trace.Read("f", &b)
	require.NoError(t, err)
	require.Equal(t, []trace.Event{{What: trace.Gap, N: 1, Line: 2}, {Time: 4, What: trace.Ready, Line: 3}}, tr.Events)
}

// Record does not wait for a slow writer, and the buffer is bounded. Events that do not fit are
// counted in gaps, in their place.
func TestSlowWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w slow
		r := trace.NewRecorder(&w)
		require.NoError(t, r.Open(header))
		const n = 100_000
		before := time.Now()
		for i := range n {
			r.Record(&trace.Event{Time: int64(i + 1), What: trace.Release, Lock: "some lock"})
			if i%20_000 == 0 {
				time.Sleep(time.Second)
			}
		}
		require.Less(t, time.Since(before), time.Minute)
		require.NoError(t, r.Flush(t.Context()))
		tr, err := trace.Read("f", &w.Buffer)
		require.NoError(t, err)
		var last int64
		var missing uint64
		for _, e := range tr.Events {
			if e.What == trace.Gap {
				missing += e.N
				last += int64(e.N)
				require.Equal(t, last, e.Time)
				continue
			}
			last++
			require.Equal(t, last, e.Time)
		}
		require.EqualValues(t, n, last)
		require.Positive(t, missing)
		require.Equal(t, r.Lost(), missing)
	})
}

type slow struct{ bytes.Buffer }

func (w *slow) Write(b []byte) (int, error) {
	if len(b) > 2<<20 {
		return 0, errors.New("that is more than the buffer")
	}
	time.Sleep(time.Duration(len(b)) * time.Microsecond)
	return w.Buffer.Write(b)
}

func TestFailingWriter(t *testing.T) {
	r := trace.NewRecorder(failing{})
	require.NoError(t, r.Open(header))
	require.ErrorContains(t, r.Flush(t.Context()), "on fire")
	r.Record(&trace.Event{What: trace.Ready})
	require.ErrorContains(t, r.Flush(t.Context()), "on fire")
	require.EqualValues(t, 1, r.Lost())

	stuck := make(chan struct{})
	r = trace.NewRecorder(writer(func(b []byte) (int, error) { <-stuck; return len(b), nil }))
	require.NoError(t, r.Open(header))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Flush(ctx), context.Canceled)
	close(stuck)
	require.NoError(t, r.Flush(t.Context()))
	require.ErrorIs(t, r.Open(header), dmutex.ErrMisuse)
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestRecordAllocates(t *testing.T) {
	if racetest.On {
		t.Skip("the race detector lets sync.Pool forget at random")
	}
	r := trace.NewRecorder(io.Discard)
	require.NoError(t, r.Open(header))
	all := events()
	record := func() {
		for i := range all {
			r.Record(&all[i])
		}
		require.NoError(t, r.Flush(context.Background()))
	}
	record()
	// The goroutine, its channels, and the name in hexadecimal.
	require.LessOrEqual(t, testing.AllocsPerRun(100, record), 8.0)
}

// conversation is the trace of node 2 of 2 under Ricart and Agrawala. The node enters once.
const conversation = `{"dmutex":"trace","version":5,"self":2,"members":[1,2],"algorithm":"ricart 2 idle"}
{"t":1,"do":"born","lock":"x","phase":"idle"}
{"t":1,"do":"request","lock":"x","out":[{"kind":"REQUEST","seq":2,"to":1,"attempt":1}],"phase":"waiting"}
{"t":2,"do":"handle","lock":"x","fence":7,"in":{"kind":"REPLY","seq":2,"from":1,"attempt":1,"fence":6},"phase":"held"}
{"t":3,"do":"handle","lock":"x","fence":7,"err":"a reply to nothing","in":{"kind":"REPLY","seq":3,"from":1,"attempt":5},"phase":"held"}
{"t":4,"do":"release","lock":"x","phase":"idle"}
{"t":5,"do":"forget","lock":"x"}
{"t":6,"do":"born","lock":"x","clock":1,"fence":7,"phase":"idle"}
{"t":7,"do":"request","lock":"x","out":[{"kind":"REQUEST","to":1,"attempt":2,"fence":7}],"phase":"waiting"}
`

func TestReplay(t *testing.T) {
	read := func(text string) *trace.Trace {
		tr, err := trace.Read("f", strings.NewReader(text))
		require.NoError(t, err)
		return tr
	}
	r, err := dmutextest.Replay(read(conversation), ricart.New)
	require.NoError(t, err)
	require.Equal(t, dmutextest.Replayed{Machines: 2, Inputs: 5}, r)

	// Replay notices a changed line.
	for _, tt := range []struct{ old, new, want string }{
		{`"seq":2,"to":1,"attempt":1}],`, `"seq":2,"to":1,"attempt":3}],`, `f:3: dmutextest: replays differently: lock "x", request: recorded 2->1 REQUEST attempt=3, now 2->1 REQUEST attempt=1`},
		{`"out":[{"kind":"REQUEST","seq":2,"to":1,"attempt":1}],`, ``, `f:3: dmutextest: replays differently: lock "x", request: recorded no message, now 2->1 REQUEST attempt=1`},
		{`"fence":6},"phase"`, `"fence":5},"phase"`, `f:4: dmutextest: replays differently: lock "x", 1->2 REPLY attempt=1 fence=5: recorded held with fence 7, now held with fence 6`},
		{`"fence":7,"in":{"kind":"REPLY","seq":2,"from":1,"attempt":1,"fence":6},"phase":"held"}`, `"in":{"kind":"REPLY","seq":2,"from":1,"attempt":1,"fence":6},"phase":"waiting"}`, `recorded waiting with fence 0, now held with fence 7`},
		{`"err":"a reply to nothing",`, ``, `f:5: dmutextest: replays differently: lock "x", 1->2 REPLY attempt=5: recorded error "", now `},
		{`"phase":"idle"}` + "\n" + `{"t":5`, `"err":"no","phase":"idle"}` + "\n" + `{"t":5`, `f:6: dmutextest: replays differently: lock "x", release: recorded error "no", now <nil>`},
		{`{"t":5,"do":"forget","lock":"x"}` + "\n", ``, `f:7: dmutextest: replays differently: lock "x", born: it is there already`},
		{`{"t":6,"do":"born","lock":"x","clock":1,"fence":7,"phase":"idle"}` + "\n", ``, `f:8: dmutextest: replays differently: lock "x", request: it was never born`},
		{`"clock":1,"fence":7,"phase":"idle"`, `"clock":1,"fence":7,"phase":"held"`, `recorded held, now idle`},
		{`"clock":1,"fence":7,"phase":"idle"`, `"clock":1,"holder":3,"fence":7,"phase":"idle"`, `Start.Holder 3`},
		{`"do":"release"`, `"do":"tick"`, `this machine has no tick`},
	} {
		require.Equal(t, 1, strings.Count(conversation, tt.old), tt.old)
		_, err := dmutextest.Replay(read(strings.Replace(conversation, tt.old, tt.new, 1)), ricart.New)
		require.ErrorIs(t, err, dmutextest.ErrDiffers)
		require.ErrorContains(t, err, tt.want)
	}

	// After a gap the state of a machine is not known.
	gap := strings.Replace(conversation, `{"t":4,"do":"release","lock":"x","phase":"idle"}`, `{"t":4,"do":"gap","n":1}`, 1)
	r, err = dmutextest.Replay(read(gap), ricart.New)
	require.NoError(t, err)
	require.Equal(t, dmutextest.Replayed{Machines: 2, Inputs: 4, Skipped: 1}, r)
}

// A file that Read accepts is what Write would write.
func FuzzRead(f *testing.F) {
	f.Add(text(f, trace.Trace{Header: header, Events: events()}))
	f.Add(conversation)
	f.Fuzz(func(t *testing.T, file string) {
		tr, err := trace.Read("f", strings.NewReader(file))
		if err != nil {
			require.ErrorIs(t, err, trace.ErrFormat)
			return
		}
		again := text(t, *tr)
		require.True(t, strings.HasPrefix(file, again))
		require.Equal(t, tr.Cut, again != file)
		_, _ = dmutextest.Replay(tr, ricart.New)
	})
}
