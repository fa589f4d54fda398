// Package transport joins the machines to a network: what a network must
// provide ([Link]) and how messages look on the wire ([AppendMessage],
// [Decoder]). Package session makes any Link reliable; memlink, tcplink and
// natslink are links.
package transport

import (
	"errors"
	"log/slog"

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

// A Reporter is a Link that can say why its frames do not reach a node. A node
// repeats that to its user.
type Reporter interface {
	Link

	// Trouble returns the last reason why frames to the node do not arrive, such as
	// a refused connection, a host that is not found or a certificate that one of
	// the two does not accept. It returns nil while nothing is known to be wrong.
	// The reason is for people: it may rest on what a stranger said.
	Trouble(to dmutex.NodeID) error
}

// A LoggerTaker is a Link that logs, and takes the logger of the node that it
// serves if it was made without one.
//
// No link waits for the logger's handler, wherever the logger comes from: a goroutine
// calls it, and up to 256 records wait for that. So a handler that is slow, or
// stuck, costs records, which are counted in a record of their own, and time in one
// place: Close, which writes what still waits. It waits as long as the handler
// takes, forever if that never returns. The handler may call any other method of the
// link.
type LoggerTaker interface {
	Link

	// TakeLogger makes the link log to logger, unless it was made with one of its
	// own. It is called before Open; later calls do nothing.
	TakeLogger(logger *slog.Logger)
}

// What Send refuses.
var (
	ErrUnknownNode = errors.New("transport: no address for this node")
	ErrFrameSize   = errors.New("transport: frame is empty, or larger than the link takes")
	ErrFull        = errors.New("transport: too much waits to be sent to this node")
	ErrClosed      = errors.New("transport: link is closed")
)
