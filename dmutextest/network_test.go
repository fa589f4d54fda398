package dmutextest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

func TestNetworkString(t *testing.T) {
	for _, tt := range []struct {
		network dmutextest.Network
		want    string
	}{
		{dmutextest.Network{}, "fifo"},
		{dmutextest.Network{Unordered: true}, "unordered"},
		{dmutextest.Network{Duplicates: 1}, "fifo, 1 duplicate"},
		{dmutextest.Network{Losses: 1}, "fifo, 1 loss"},
		{dmutextest.Network{Channel: 5}, "fifo, channel 5"},
		{dmutextest.Network{Unordered: true, Duplicates: 2, Losses: 3, Channel: 4}, "unordered, 2 duplicates, 3 losses, channel 4"},
	} {
		require.Equal(t, tt.want, tt.network.String())
		back, err := dmutextest.ParseNetwork(tt.want)
		require.NoError(t, err)
		require.Equal(t, tt.network, back)
	}
}

func TestParseNetworkRefuses(t *testing.T) {
	for _, s := range []string{
		"", "lossy", "fifo unordered", "fifo, unordered", "1 loss", "fifo,", "fifo, loss", "fifo, 0 losses",
		"fifo, -1 losses", "fifo, channel", "fifo, channel 0", "fifo, channel 65536", "fifo, 2 dogs",
	} {
		_, err := dmutextest.ParseNetwork(s)
		require.ErrorIs(t, err, dmutex.ErrMisuse, "%q", s)
	}
}
