package natslink

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// A peer counts as dead when the server has said for an eighth of a lease that nobody subscribes to
// its subject, and the own connection has been up for a third of one. The lease is 50 s here: the link
// looks each second.
func TestDeath(t *testing.T) {
	always := func(int) bool { return true }
	for name, test := range map[string]struct {
		frames    int
		nobody    func(second int) bool // what the server says to a question
		happens   func(l *Link, second int)
		up        int // for how many seconds the connection is up before
		died      int // in which second
		questions int // at least
	}{
		"killed":                {frames: 2, nobody: always, up: 20, died: 8, questions: 7},
		"a new connection":      {frames: 2, nobody: always, died: 17, questions: 16},
		"one frame is the last": {frames: 1, nobody: always, up: 20},
		"it lives, and is slow": {frames: 2, nobody: func(int) bool { return false }, up: 20, questions: 29},
		"a question in flight":  {frames: 2, nobody: func(second int) bool { return second != 5 }, up: 20, died: 13, questions: 12},
		"it is heard": {frames: 2, nobody: always, up: 20, questions: 5, happens: func(l *Link, second int) {
			if second == 5 {
				l.receive(&nats.Msg{Subject: "p.1.2", Data: []byte("frame")}, 1)
			}
		}},
		"the connection breaks": {frames: 2, nobody: always, up: 20, died: 4 + 17, questions: 20, happens: func(l *Link, second int) {
			if second == 4 {
				l.look(time.Now(), true, 1)
			}
		}},
		"this process is paused": {frames: 2, nobody: always, up: 20, died: 8, questions: 7, happens: func(_ *Link, second int) {
			if second == 1 {
				time.Sleep(20 * time.Second)
			}
		}},
		"no question leaves": {frames: 2, nobody: always, up: 20, questions: 1, happens: func(l *Link, _ int) { l.queued = backlog }},
		"removed": {frames: 2, nobody: always, up: 20, questions: 3, happens: func(l *Link, second int) {
			if second == 3 {
				l.RemovePeer(2)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &Link{dynamic: true, self: 1, prefix: "p", maxFrame: maxFrame, peers: make(map[dmutex.NodeID]*peer), upSince: time.Now()}
				l.wake = sync.NewCond(&l.mu)
				l.host = transport.Host{Apart: time.Second, Deliver: func(dmutex.NodeID, [][]byte) {}}
				require.NoError(t, l.SetPeer(2, ""))
				time.Sleep(time.Duration(test.up) * time.Second)
				for range test.frames {
					require.NoError(t, l.Send(2, []byte("frame")))
				}
				died, questions := 0, 0
				for second := 1; second <= 30; second++ {
					time.Sleep(time.Second)
					for _, id := range l.look(time.Now(), true, l.reconnects) {
						require.Equal(t, dmutex.NodeID(2), id)
						require.Zero(t, died, "told twice")
						died = second
					}
					queue := l.queue
					l.queue = nil
					for _, f := range queue {
						if f.reply == "" {
							continue
						}
						questions++
						require.Equal(t, outgoing{subject: "p.2.1", reply: "p.1.?2"}, f)
						if test.nobody(second) {
							l.receive(&nats.Msg{Subject: f.reply, Header: nats.Header{"Status": {"503"}}}, 1)
						}
					}
					if test.happens != nil {
						test.happens(l, second)
					}
				}
				require.Equal(t, test.died, died)
				require.GreaterOrEqual(t, questions, test.questions)
				if test.questions == 0 || died == 0 && test.happens != nil {
					require.Equal(t, test.questions, questions)
				}
			})
		})
	}
}

// What waited for a removed peer takes no room from the others. While a batch is stuck, nothing else
// makes room; and without a frame in the queue, nothing would wake publish.
func TestRemovedPeersLeaveRoom(t *testing.T) {
	l := &Link{dynamic: true, self: 1, prefix: "p", maxFrame: maxFrame, peers: make(map[dmutex.NodeID]*peer)}
	l.wake = sync.NewCond(&l.mu)
	l.host.Deliver = func(dmutex.NodeID, [][]byte) {}
	require.NoError(t, l.SetPeer(2, ""))
	require.NoError(t, l.SetPeer(3, ""))
	frame := make([]byte, maxFrame)
	for l.Send(2, frame) == nil {
	}
	require.ErrorIs(t, l.Send(3, frame), transport.ErrFull)
	l.RemovePeer(2)
	require.NoError(t, l.Send(3, frame))
}
