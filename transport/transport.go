// Package transport joins the machines to a network: what a network must
// provide ([Link]) and how messages look on the wire ([AppendMessage],
// [Decoder]). Package session makes any Link reliable; memlink, tcplink and
// natslink are links.
package transport

import (
	"errors"

	"github.com/dmutex/dmutex"
)

// A Link is the only thing that a network must provide: it carries frames to
// nodes, as well as it can. It may lose, repeat, reorder and delay them, but
// not alter them; package session repairs the rest.
//
// All methods are safe for concurrent use.
type Link interface {
	// Open begins to deliver the frames that arrive. It is called once, before
	// the first Send. The link calls deliver from goroutines of its own,
	// perhaps from several at once, with the node that sent the frame; the
	// frame is valid only during the call. deliver may call Send but not
	// Close.
	Open(deliver func(from dmutex.NodeID, frame []byte)) error

	// Send hands a frame of 1 to MaxFrame bytes to the network. It never waits
	// for the network or for a peer, and does not keep the frame; what the link
	// keeps instead, for peers that are slow or not there, is bounded by some
	// megabytes. A nil error promises nothing; an error says why the frame was
	// surely not sent: ErrUnknownNode, ErrFrameSize, ErrFull or ErrClosed.
	Send(to dmutex.NodeID, frame []byte) error

	// MaxFrame is the size of the largest frame in bytes, at least 1024.
	MaxFrame() int

	// Close ends delivery and waits until deliver is no longer running and
	// every goroutine of the link has ended. Closing again does nothing.
	Close() error
}

// A BurstLink is a Link that knows which frames have arrived together. A node
// opens it by OpenBursts and not by Open: what it has to answer to frames that
// came together then leaves together, in fewer frames, without anything having
// waited for it. Whoever wraps a BurstLink and overrides Open must override
// OpenBursts as well; what embeds the interface Link is none.
type BurstLink interface {
	Link

	// OpenBursts is Open for a deliver that takes at once all frames of a node
	// that are there at once: one or more, as Open would deliver them one after
	// the other. They should be few, or small: the answer to the first leaves
	// after the last. The slice, too, is valid only during the call.
	OpenBursts(deliver func(from dmutex.NodeID, frames [][]byte)) error
}

// What Send refuses.
var (
	ErrUnknownNode = errors.New("transport: no address for this node")
	ErrFrameSize   = errors.New("transport: frame is empty, or larger than the link takes")
	ErrFull        = errors.New("transport: too much waits to be sent to this node")
	ErrClosed      = errors.New("transport: link is closed")
)
