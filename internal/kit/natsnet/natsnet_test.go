package natsnet

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// A client has what has come to it.
type client struct {
	*testing.T
	*nats.Conn
	*Way
	got chan string
}

func (s *Server) client(t *testing.T, options ...nats.Option) *client {
	c := &client{T: t, Way: s.Way(), got: make(chan string, 100)}
	var err error
	c.Conn, err = c.Connect(append(options, nats.MaxReconnects(-1), nats.ReconnectWait(time.Second), nats.ReconnectJitter(0, 0),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Hold(false, false)
		c.Close()
	})
	return c
}

func (c *client) listen(subject string) {
	_, err := c.Subscribe(subject, func(m *nats.Msg) { c.got <- string(m.Data) })
	require.NoError(c, err)
	require.NoError(c, c.flush())
}

func (c *client) flush() error {
	ctx, cancel := context.WithTimeout(c.Context(), time.Second)
	defer cancel()
	return c.FlushWithContext(ctx)
}

// asks asks for an answer, which nobody gives.
func (c *client) asks() error {
	ctx, cancel := context.WithTimeout(c.Context(), time.Second)
	defer cancel()
	_, err := c.RequestWithContext(ctx, "x.y", []byte("?"))
	return err
}

func (c *client) say(texts ...string) {
	c.Helper()
	for _, text := range texts {
		require.NoError(c, c.Publish("x.y", []byte(text)))
	}
}

// heard requires what has come, and forgets it.
func (c *client) heard(after time.Duration, want ...string) {
	c.Helper()
	time.Sleep(after)
	synctest.Wait()
	var got []string
	for len(c.got) > 0 {
		got = append(got, <-c.got)
	}
	require.Equal(c, want, got)
}

// inPair runs a test with two clients. Client b has subscribed.
func inPair(t *testing.T, test func(t *testing.T, s *Server, a, b *client)) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		a, b := s.client(t), s.client(t)
		b.listen("x.*")
		a.say("hello")
		b.heard(0, "hello")
		test(t, s, a, b)
	})
}

func TestLate(t *testing.T) {
	inPair(t, func(_ *testing.T, _ *Server, a, b *client) {
		a.Delay(100 * time.Millisecond)
		a.say("1", "2", "3")
		b.heard(0)
		b.heard(100*time.Millisecond, "1", "2", "3")
	})
}

// What is held back arrives later if the client has not given the connection up.
func TestHold(t *testing.T) {
	inPair(t, func(t *testing.T, _ *Server, a, b *client) {
		b.Hold(false, true)
		a.say("1")
		b.heard(time.Second)
		b.Hold(false, false)
		b.heard(0, "1")

		b.Pause()
		b.Hold(false, true)
		a.say("2")
		b.Hold(false, false)
		b.heard(0)
		b.Resume()
		b.heard(0, "2")

		b.Hold(true, true)
		a.say("3")
		time.Sleep(10 * time.Second)
		require.False(t, b.IsConnected())
		b.Hold(false, false)
		b.heard(time.Second)
		require.True(t, b.IsConnected())
		a.say("4")
		b.heard(0, "4")

		a.Hold(true, false)
		begin := time.Now()
		require.ErrorIs(t, a.flush(), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// What is published while there is no connection is sent with the next one, and lost to those that have none.
func TestDrop(t *testing.T) {
	inPair(t, func(_ *testing.T, _ *Server, a, b *client) {
		a.Refuse(true)
		a.Drop()
		synctest.Wait()
		a.say("1")
		b.heard(10 * time.Second)
		a.Refuse(false)
		b.heard(time.Second, "1")

		b.Drop()
		synctest.Wait()
		a.say("2")
		b.heard(time.Second)
		a.say("3")
		b.heard(0, "3")
	})
}

func TestRestart(t *testing.T) {
	inPair(t, func(t *testing.T, s *Server, a, b *client) {
		s.Stop()
		time.Sleep(10 * time.Second)
		require.False(t, a.IsConnected())
		s.Start()
		time.Sleep(time.Second)
		synctest.Wait()
		a.say("1")
		b.heard(0, "1")
	})
}

// The end of a process is seen at once, and that of its machine late.
func TestEnds(t *testing.T) {
	inPair(t, func(t *testing.T, s *Server, a, b *client) {
		b.say("last")
		require.NoError(t, b.flush())
		b.Kill()
		require.ErrorIs(t, a.asks(), nats.ErrNoResponders)
		time.Sleep(10 * time.Second)
		require.False(t, b.IsConnected())

		c := s.client(t)
		c.listen("x.*")
		c.PowerOff()
		require.ErrorIs(t, a.asks(), context.DeadlineExceeded)
		time.Sleep(stale)
		require.ErrorIs(t, a.asks(), nats.ErrNoResponders)
	})
}

func TestLose(t *testing.T) {
	inPair(t, func(_ *testing.T, s *Server, a, b *client) {
		s.Lose(1)
		a.say("1")
		b.heard(0)
		s.Lose(0)
		a.say("2")
		b.heard(0, "2")
	})
}

func TestCut(t *testing.T) {
	inPair(t, func(t *testing.T, s *Server, a, b *client) {
		s.Cut(a.Way, b.Way)
		a.say("1")
		require.ErrorIs(t, a.asks(), nats.ErrNoResponders)
		b.say("2")
		b.heard(0, "2")
		s.Heal()
		a.say("3")
		b.heard(0, "3")
		s.Partition(a.Way)
		a.say("4")
		b.heard(0)
	})
}

// After Wait nothing is refused at once, and a writer waits for room.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		w := s.Way()
		s.Wait()
		c, err := w.InProcessConn()
		require.NoError(t, err)
		w.Hold(true, false)
		begin := time.Now()
		_, err = c.Write(make([]byte, window+1))
		require.NoError(t, err)
		require.NoError(t, c.SetWriteDeadline(begin.Add(time.Minute)))
		_, err = c.Write([]byte("x"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(begin))
		_, err = w.InProcessConn()
		require.Equal(t, errRefused, err)
		require.Equal(t, time.Minute+patience, time.Since(begin))
		time.AfterFunc(time.Second, func() { w.Hold(false, false) })
		_, err = w.InProcessConn()
		require.NoError(t, err)
		require.Equal(t, time.Minute+patience+time.Second, time.Since(begin))
	})
}
