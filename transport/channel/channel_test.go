package channel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/channel"
	"github.com/dmutex/dmutex/transport/memlink"
)

type lost struct {
	peer dmutex.NodeID
	why  error
}

func open(t *testing.T, self, peer dmutex.NodeID, link transport.Link, receive func(string, dmutex.Message) ([]dmutex.Message, error)) (*channel.Channels, <-chan lost) {
	t.Helper()
	losses := make(chan lost, 10)
	c, err := channel.Open(self, channel.Config{Peers: []dmutex.NodeID{peer}, Link: link, Receive: receive,
		Lost: func(peer dmutex.NodeID, why error) { losses <- lost{peer, why} }})
	require.NoError(t, err)
	return c, losses
}

func nothing(string, dmutex.Message) ([]dmutex.Message, error) { return nil, nil }

func request() ([]dmutex.Message, error) {
	return []dmutex.Message{{Kind: dmutex.Request, From: 1, To: 2, Attempt: 1}}, nil
}

// Lost says why messages may be lost: the peer left or restarted, Receive refused a
// message, or the link was closed.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		link := network.Link(1)
		one, losses := open(t, 1, 2, link, nothing)
		two, _ := open(t, 2, 1, network.Link(2), nothing)
		require.NoError(t, one.Do("x", request))
		synctest.Wait()
		go func() { _ = two.Close(t.Context()) }()
		loss := <-losses
		require.EqualValues(t, 2, loss.peer)
		require.ErrorContains(t, loss.why, "closed its channels")

		time.Sleep(time.Second)
		refusal := errors.New("refused")
		two, others := open(t, 2, 1, network.Link(2), func(string, dmutex.Message) ([]dmutex.Message, error) { return nil, refusal })
		loss = <-losses
		require.EqualValues(t, 2, loss.peer)
		require.ErrorContains(t, loss.why, "taken its place")
		require.NoError(t, one.Do("x", request))
		loss = <-others
		require.EqualValues(t, 1, loss.peer)
		require.ErrorIs(t, loss.why, refusal)

		require.NoError(t, link.Close())
		loss = <-losses
		require.Equal(t, dmutex.None, loss.peer)
		require.ErrorIs(t, loss.why, transport.ErrClosed)
		ended, end := context.WithCancel(t.Context())
		end()
		_ = one.Close(ended)
		_ = two.Close(ended)
	})
}

// A liar is a link that makes every acknowledgement one of message 99.
type liar struct{ transport.Link }

func (l liar) Open(host transport.Host) error {
	deliver := host.Deliver
	host.Deliver = func(from dmutex.NodeID, frames [][]byte) {
		for _, frame := range frames {
			if frame[0] == 3 {
				frame[len(frame)-1] = 99
			}
		}
		deliver(from, frames)
	}
	return l.Link.Open(host)
}

// Lost tells of a peer that counts messages which somebody else has sent, and so takes none of ours anymore.
func TestForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		one, losses := open(t, 1, 2, liar{network.Link(1)}, nothing)
		two, _ := open(t, 2, 1, network.Link(2), nothing)
		require.NoError(t, one.Do("x", request))
		var loss lost
		select {
		case loss = <-losses:
		case <-time.After(time.Minute):
		}
		require.EqualValues(t, 2, loss.peer)
		require.ErrorContains(t, loss.why, "another process has sent frames in this node's name")
		ended, end := context.WithCancel(t.Context())
		end()
		_ = one.Close(ended)
		_ = two.Close(ended)
	})
}

// Do returns the error of its function, and sends the messages returned with it.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		one, _ := open(t, 1, 2, network.Link(1), nothing)
		got := make(chan dmutex.Message, 1)
		two, _ := open(t, 2, 1, network.Link(2), func(lock string, m dmutex.Message) ([]dmutex.Message, error) {
			got <- m.Clone()
			return nil, nil
		})
		mistake := errors.New("mistake")
		require.ErrorIs(t, one.Do("x", func() ([]dmutex.Message, error) {
			out, _ := request()
			return out, mistake
		}), mistake)
		require.Equal(t, dmutex.Message{Kind: dmutex.Request, From: 1, To: 2, Attempt: 1}, <-got)
		require.ErrorContains(t, one.Do("x", func() ([]dmutex.Message, error) {
			return []dmutex.Message{{Kind: dmutex.Request, To: 3, Attempt: 1}}, nil
		}), "message to node 3")
		done := make(chan error)
		go func() { done <- one.Close(t.Context()) }()
		require.NoError(t, two.Close(t.Context()))
		require.NoError(t, <-done)
	})
}

// Open refuses these, and closes the link.
func TestOpenRefuses(t *testing.T) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	link := net.Link(1)
	_, err = channel.Open(1, channel.Config{Link: link})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorIs(t, link.Open(transport.Host{}), transport.ErrClosed)
	_, err = channel.Open(1, channel.Config{Receive: nothing})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	_, err = channel.Open(1, channel.Config{Receive: nothing, Lost: func(dmutex.NodeID, error) {}})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
}
