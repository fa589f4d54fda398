package tcplink

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// A stream is a connection that brings bytes in pieces of given lengths.
type stream struct {
	net.Conn
	bytes []byte
	cuts  []byte // lengths of the pieces, over and over; 0 is all that fits
	reads int
}

func (s *stream) Read(b []byte) (int, error) {
	if len(s.bytes) == 0 {
		return 0, io.EOF
	}
	n := len(b)
	if len(s.cuts) > 0 {
		if cut := int(s.cuts[s.reads%len(s.cuts)]); cut > 0 {
			n = min(n, cut)
		}
	}
	s.reads++
	n = copy(b[:n], s.bytes)
	s.bytes = s.bytes[n:]
	return n, nil
}

// split does what read does, in the obvious way.
func split(b []byte) (frames [][]byte, err error) {
	for len(b) >= headerSize {
		size := binary.BigEndian.Uint32(b)
		switch {
		case size == question:
			size = 0
		case size > maxFrame:
			return frames, errOversized
		case len(b)-headerSize < int(size):
			return frames, io.EOF
		case size > 0:
			frames = append(frames, b[headerSize:headerSize+size])
		}
		b = b[headerSize+size:]
	}
	return frames, io.EOF
}

// reader returns a peer whose frames are delivered.
func reader(deliver func(from dmutex.NodeID, frames [][]byte)) *peer {
	return newPeer(&Link{ctx: context.Background(), host: transport.Host{Deliver: deliver}}, 1, "")
}

// FuzzRead sends any bytes in any pieces. Whatever the pieces are, the frames
// are the same, and nonsense ends the connection.
func FuzzRead(f *testing.F) {
	long := bytes.Repeat([]byte("long"), maxFrame/4)
	for _, cuts := range []string{"", "\x01", "\x03\x05", "\xff\x01\x00"} {
		f.Add([]byte{}, []byte(cuts))
		f.Add(appendFrame(appendFrame(nil, []byte("one")), []byte("two")), []byte(cuts))
		f.Add(appendFrame(appendFrame(nil, nil), []byte("after a heartbeat")), []byte(cuts))
		f.Add(appendFrame(appendFrame(appendFrame(nil, long), long), []byte("end")), []byte(cuts))
		f.Add(appendFrame(nil, append(long, 1)), []byte(cuts))
		f.Add(appendFrame([]byte{0, 0, 0, 9, 'x'}, nil), []byte(cuts))
		f.Add([]byte{0, 1, 0, 1, 1}, []byte(cuts))
		f.Add([]byte{0xff, 0xff, 0xff, 0xfe, 1}, []byte(cuts))
		f.Add(appendFrame(binary.BigEndian.AppendUint32(nil, question), []byte("after a question")), []byte(cuts))
	}
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		var got [][]byte
		p := reader(func(_ dmutex.NodeID, frames [][]byte) {
			for _, frame := range frames {
				got = append(got, bytes.Clone(frame))
			}
		})
		err := p.read(&conn{Conn: &stream{bytes: data, cuts: cuts}})
		want, wantErr := split(data)
		require.Equal(t, want, got)
		require.True(t, errors.Is(err, wantErr), "%v, want %v", err, wantErr)
	})
}

// The frames of one read are delivered together, up to a limit, even if nonsense
// follows them.
func TestReadBursts(t *testing.T) {
	frame := appendFrame(nil, []byte("frame"))
	for _, test := range []struct {
		name   string
		bytes  []byte
		cut    int // where the first read ends
		bursts []int
	}{
		{"one", frame, len(frame), []int{1}},
		{"three", bytes.Repeat(frame, 3), 3 * len(frame), []int{3}},
		{"two reads", bytes.Repeat(frame, 3), 2*len(frame) + 1, []int{2, 1}},
		{"a heartbeat", appendFrame(nil, nil), headerSize, nil},
		{"a heartbeat among them", append(appendFrame(bytes.Clone(frame), nil), frame...), 2*len(frame) + headerSize, []int{2}},
		{"as many as may be", bytes.Repeat(frame, maxBurst), 0, []int{maxBurst}},
		{"more than may be", bytes.Repeat(frame, 2*maxBurst+2), 0, []int{maxBurst, maxBurst, 2}},
		{"nonsense behind them", append(bytes.Repeat(frame, 2), 0xff, 0xff, 0xff, 0xff), 0, []int{2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var bursts []int
			p := reader(func(_ dmutex.NodeID, frames [][]byte) {
				for _, f := range frames {
					require.Equal(t, "frame", string(f))
				}
				bursts = append(bursts, len(frames))
			})
			err := p.read(&conn{Conn: &stream{bytes: test.bytes, cuts: []byte{byte(test.cut), 0}}})
			require.Error(t, err)
			require.Equal(t, test.bursts, bursts)
		})
	}
}

// FuzzGreeting: a greeting that is accepted has exactly the bytes that a link would
// write for it.
func FuzzGreeting(f *testing.F) {
	f.Add(greetingBytes(2, 1))
	f.Add(greetingBytes(2, 3))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n......"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var g greeting
		if g.read(bytes.NewReader(data)) == nil {
			require.Equal(t, g.bytes(), data[:len(g.bytes())])
		}
	})
}
