package tcplink_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport/tcplink"
)

func TestConfig(t *testing.T) {
	type book = map[dmutex.NodeID]string
	for name, test := range map[string]struct {
		config tcplink.Config
		says   string // part of the refusal; empty if accepted
	}{
		"minimal":            {tcplink.Config{Self: 1, Listen: "127.0.0.1:0"}, ""},
		"one book for all":   {tcplink.Config{Self: 1, Peers: book{1: "127.0.0.1:0", 2: "127.0.0.1:1"}}, ""},
		"IPv6 peer":          {tcplink.Config{Self: 1, Listen: "127.0.0.1:0", Peers: book{2: "[::1]:7000"}}, ""},
		"localhost":          {tcplink.Config{Self: 1, Listen: "localhost:0", Peers: book{2: "localhost:7000"}}, ""},
		"peer not yet known": {tcplink.Config{Self: 1, Listen: "127.0.0.1:0", Peers: book{2: ""}}, ""},
		"plain, allowed":     {tcplink.Config{Self: 1, Listen: ":0", Peers: book{2: "10.1.2.3:7000"}, AllowPlain: true}, ""},
		"not in the book":    {tcplink.Config{Self: 4, Peers: book{2: "127.0.0.1:1"}}, "Config.Listen is missing, and Config.Peers has no address of Self"},
		"no listen":          {tcplink.Config{Self: 1, Peers: book{1: "", 2: "127.0.0.1:1"}}, "Config.Listen is missing"},
		"listen on all":      {tcplink.Config{Self: 1, Listen: ":0"}, "AllowPlain"},
		"listen on 0.0.0.0":  {tcplink.Config{Self: 1, Listen: "0.0.0.0:0"}, "AllowPlain"},
		"listen on ::":       {tcplink.Config{Self: 1, Listen: "[::]:0"}, "AllowPlain"},
		"IPv4 in IPv6":       {tcplink.Config{Self: 1, Listen: "[::ffff:127.0.0.1]:0", Peers: book{2: "[::ffff:127.0.0.1]:1"}}, ""},
		"beyond in IPv6":     {tcplink.Config{Self: 1, Listen: "127.0.0.1:0", Peers: book{2: "[::ffff:10.1.2.3]:7000"}}, "AllowPlain"},
		"listen on a name":   {tcplink.Config{Self: 1, Listen: "example.com:0"}, "AllowPlain"},
		"self beyond":        {tcplink.Config{Self: 1, Peers: book{1: "0.0.0.0:0"}}, "AllowPlain"},
		"no port":            {tcplink.Config{Self: 1, Listen: "127.0.0.1"}, "give host:port"},
		"peer 0":             {tcplink.Config{Self: 1, Listen: "127.0.0.1:0", Peers: book{0: "127.0.0.1:1"}}, "node 0"},
		"peer without port":  {tcplink.Config{Self: 1, Listen: "127.0.0.1:0", Peers: book{2: "127.0.0.1"}}, "node 2"},
		"peer at no port":    {tcplink.Config{Self: 1, Listen: "127.0.0.1:0", Peers: book{2: "127.0.0.1:"}}, "node 2"},
		"peer at port 0":     {tcplink.Config{Self: 1, Listen: "127.0.0.1:0", Peers: book{2: "127.0.0.1:0"}}, "node 2"},
		"no such port":       {tcplink.Config{Self: 1, Listen: "127.0.0.1:0", Peers: book{2: "127.0.0.1:65536"}}, "node 2"},
		"listen at none":     {tcplink.Config{Self: 1, Listen: "127.0.0.1:-1"}, "Config.Listen is \"127.0.0.1:-1\": give host:port"},
		"port by name":       {tcplink.Config{Self: 1, Listen: "127.0.0.1:0", Peers: book{2: "127.0.0.1:https"}}, ""},
		"peer beyond":        {tcplink.Config{Self: 1, Listen: "127.0.0.1:0", Peers: book{2: "10.1.2.3:7000"}}, "AllowPlain"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := tcplink.New(test.config)
			if test.says == "" {
				require.NoError(t, err)
				require.NoError(t, l.Close())
				return
			}
			require.ErrorIs(t, err, dmutex.ErrMisuse)
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestListenTwice(t *testing.T) {
	first, err := tcplink.New(tcplink.Config{Self: 1, Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	again := tcplink.Config{Self: 2, Listen: first.Addr().String()}
	_, err = tcplink.New(again)
	require.ErrorContains(t, err, "address already in use: another program listens there, perhaps another process of this node")
	require.NotErrorIs(t, err, dmutex.ErrMisuse)
	require.NoError(t, first.Close()) // gives the address back, though never opened
	second, err := tcplink.New(again)
	require.NoError(t, err)
	require.NoError(t, second.Close())
}

func TestSetPeerRefuses(t *testing.T) {
	l, err := tcplink.New(tcplink.Config{Self: 1, Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	require.ErrorIs(t, l.SetPeer(1, "127.0.0.1:1"), dmutex.ErrMisuse)
	require.ErrorIs(t, l.SetPeer(0, "127.0.0.1:1"), dmutex.ErrMisuse)
	require.ErrorIs(t, l.SetPeer(2, "10.1.2.3:7000"), dmutex.ErrMisuse)
	require.ErrorIs(t, l.SetPeer(2, "7000"), dmutex.ErrMisuse)
	require.NoError(t, l.Close())
}
