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
// nodes, with best effort. It may lose, repeat, reorder and delay them, but not
// alter them; package session repairs the rest. Package linktest tests a Link.
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
	// buffers, for peers that are slow or absent, is bounded by some megabytes. A
	// nil error promises nothing; an error says why the frame was certainly not
	// sent: ErrUnknownNode, ErrFrameSize, ErrFull or ErrClosed.
	Send(to dmutex.NodeID, frame []byte) error

	// MaxFrame is the size of the largest frame in bytes, at least 1024.
	MaxFrame() int

	// Close ends delivery and waits until deliver is no longer running and
	// every goroutine of the link has ended. Closing again does nothing.
	Close() error
}

// A BurstLink is a Link that knows which frames have arrived together. A node
// opens it by OpenBursts instead of Open: the answers to frames that arrived
// together then leave together, in fewer frames, and nothing had to wait for that. A
// type that wraps a BurstLink and overrides Open must override OpenBursts too. A type
// that embeds the interface Link is not a BurstLink.
type BurstLink interface {
	Link

	// OpenBursts is Open for a deliver that takes all frames of a node that are
	// there at the same time: one or more, in the order in which Open would
	// deliver them. They should be few, or small, because the answer to the first
	// leaves after the last. The slice, too, is valid only during the call.
	OpenBursts(deliver func(from dmutex.NodeID, frames [][]byte)) error
}

// A DynamicLink is a Link for members that come and go, whose numbers and addresses
// are in the record of a store. Package node needs one for Config.Store. It begins as
// the link of nobody, without peers: then it carries no frames.
//
// All methods may be called at any time, also by deliver and before Open, and none of
// them waits.
type DynamicLink interface {
	Link

	// Address is where the other nodes reach this one, as their SetPeer takes it: at
	// most 256 bytes, and empty if the number is enough.
	Address() string

	// Become gives this node a number, or takes it away: then self is [dmutex.None].
	// All peers are forgotten, and frames for the former number are not delivered any
	// more. A deliver that is running may still go on. Frames for the new number may be
	// lost at first. Become returns ErrClosed after Close, and [dmutex.ErrMisuse] if the
	// link was made with a number.
	Become(self dmutex.NodeID) error

	// SetPeer enters a node among the peers, or gives it a new address. It refuses with
	// [dmutex.ErrMisuse] an address that it cannot use, the node itself, and any peer of
	// a node without a number. It returns ErrClosed after Close. Send takes frames only
	// for peers.
	//
	// A link may take frames from a node that is not a peer. If it needs to know the
	// sender first, it refuses the sender and calls deliver with an empty frame, which tells
	// the receiver that an unknown node wants to reach it.
	SetPeer(id dmutex.NodeID, address string) error

	// RemovePeer forgets a peer, and drops what waits for it. It does nothing for a
	// node that is not a peer.
	RemovePeer(id dmutex.NodeID)
}

// A Reporter is a Link that can say why its frames do not reach a node. Package node
// passes that on to its user.
type Reporter interface {
	Link

	// Trouble returns the last reason why frames to the node do not arrive, such as
	// a refused connection, a host that is not found or a certificate that one side
	// does not accept. It returns nil while nothing is known to be wrong. The reason
	// is for people: do not act on it, because it may come from a stranger.
	Trouble(to dmutex.NodeID) error
}

// A LoggerTaker is a Link that logs, and takes the logger of the node that it
// serves if it was made without one.
//
// No link waits for the logger's handler, wherever the logger comes from: a goroutine
// calls it, with a queue of up to 256 records. A handler that is slow, or stuck, costs
// records, which are counted in a record of their own. It delays only Close, which
// writes the queue, and waits forever if the handler never returns. The handler may
// call any other method of the link.
type LoggerTaker interface {
	Link

	// TakeLogger makes the link log to logger, unless it was made with a logger. It
	// is called before Open; later calls do nothing.
	TakeLogger(logger *slog.Logger)
}

// Why Send refuses a frame.
var (
	ErrUnknownNode = errors.New("transport: no address for this node")
	ErrFrameSize   = errors.New("transport: frame is empty or larger than the link takes")
	ErrFull        = errors.New("transport: too much is queued for this node")
	ErrClosed      = errors.New("transport: link is closed")
)
