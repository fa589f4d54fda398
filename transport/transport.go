// Package transport defines what a network must provide ([Link]). Packages memlink,
// tcplink and natslink are links. Packages node and channel make any of them reliable.
package transport

import (
	"errors"
	"log/slog"
	"time"

	"github.com/dmutex/dmutex"
)

// MaxName is the length of the longest name of a lock, in bytes. The shortest has one.
// A name may contain any bytes, not only UTF-8.
const MaxName = 255

// A Link carries frames to nodes, with best effort: it may lose, repeat, reorder and delay
// frames, but not alter them. Package linktest tests it. All methods are safe for concurrent use.
type Link interface {
	// Open begins to deliver the frames that arrive. It is called once, before
	// the first Send. The link calls deliver from its own goroutines, possibly
	// from several at once, with the node that sent the frame. The frame is
	// valid only during the call. deliver may call Send but not Close.
	Open(deliver func(from dmutex.NodeID, frame []byte)) error

	// Send hands a frame of 1 to MaxFrame bytes to the network. It never waits
	// for the network or for a peer, and does not keep the frame. For peers that
	// are slow or absent, the link buffers at most some megabytes. A nil error
	// does not promise that the frame arrives. An error says why the frame was
	// certainly not sent: ErrUnknownNode, ErrFrameSize, ErrFull or ErrClosed.
	Send(to dmutex.NodeID, frame []byte) error

	// MaxFrame is the size of the largest frame in bytes, at least 1024.
	MaxFrame() int

	// Close ends delivery and waits until deliver is no longer running and
	// every goroutine of the link has ended. Closing again does nothing.
	Close() error
}

// A BurstLink is a Link that knows which frames have arrived together. A node opens
// it with OpenBursts instead of Open, so that the answers leave together, in fewer frames
// and without added delay. A type that embeds a BurstLink and overrides Open must
// override OpenBursts too.
type BurstLink interface {
	Link

	// OpenBursts is Open for a deliver that takes all frames of a node that are
	// there at the same time: one or more, in order. They should be few, or small,
	// because the answer to the first frame leaves after the last one is handled. The
	// slice, too, is valid only during the call.
	OpenBursts(deliver func(from dmutex.NodeID, frames [][]byte)) error
}

// A DynamicLink is a Link for members that come and go, whose numbers and addresses
// are in the record of a store. At first it has no number and no peers, and carries no
// frames. All methods may be called at any time, also by deliver and before Open, and none
// of them waits.
type DynamicLink interface {
	Link

	// Address returns the address of this node for the SetPeer of the other nodes:
	// at most 256 bytes, and empty if the number is enough.
	Address() string

	// Become gives this node a number, or takes it away: then self is [dmutex.None]. The
	// link forgets all peers, and no longer delivers frames for the former number. A
	// deliver that is running may still finish. Frames for the new number may be lost at
	// first. Become returns ErrClosed after Close, and [dmutex.ErrMisuse] if the link
	// was made with a number.
	Become(self dmutex.NodeID) error

	// SetPeer adds a node to the peers, or gives it a new address. Send accepts frames
	// only for peers. SetPeer returns [dmutex.ErrMisuse] for an address that it cannot
	// use, for the node itself, and while this node has no number, and ErrClosed after
	// Close.
	//
	// A link may deliver frames from a node that is not a peer, or refuse them and call
	// deliver with an empty frame: an unknown node wants to reach this one.
	SetPeer(id dmutex.NodeID, address string) error

	// RemovePeer removes a peer, and drops the frames that are queued for it. It
	// does nothing for a node that is not a peer.
	RemovePeer(id dmutex.NodeID)
}

// A LifeLink is a Link whose connections belong to one process each. It tells the peers
// which life of this node connects, so that of two processes with one number only one is
// connected to a peer.
type LifeLink interface {
	// SetLife gives the link the life of this process, before Open and whenever it has
	// changed. The link refuses peers that claim a life above maxLife, and calls taken if
	// a peer keeps a connection with another process of this node's number, with the life
	// of that process. taken may call all methods but Close.
	SetLife(life uint64, maxLife func() uint64, taken func(peer dmutex.NodeID, life uint64))
}

// A DeathLink is a Link that may see that the process of a peer has ended. Such a peer is
// excluded at once, and not only after it has been silent for a while.
type DeathLink interface {
	// WatchDeaths gives the link a function, before Open. The link calls it when a
	// connection with the peer was lost, no other has come, and the system at the peer's
	// address has refused two more, that long apart, because no process listens there.
	// Time-outs and hosts that cannot be reached do not count. A firewall or a proxy
	// may refuse connections too, so this is evidence, not proof. died may call all
	// methods but Close.
	WatchDeaths(apart time.Duration, died func(peer dmutex.NodeID))
}

// A Reporter is a Link that can say why its frames do not reach a node.
type Reporter interface {
	// Trouble returns the last reason why frames to the node do not arrive, such as
	// a refused connection or certificate, and nil while nothing is known to be wrong.
	// Package node shows it to people. Programs must not act on it, because it may
	// come from an unknown host.
	Trouble(to dmutex.NodeID) error
}

// A LoggerTaker is a Link that logs, and takes the logger of the node that it
// serves if it was made without one.
//
// No link waits for the logger's handler: a goroutine calls it, with a queue of up to 256
// records. If the handler is slow or stuck, the link drops records, and logs their count
// later. Only Close waits for the handler, which may call any other method of the link.
type LoggerTaker interface {
	// TakeLogger makes the link log to logger, unless it was made with a logger. It
	// is called before Open; later calls do nothing.
	TakeLogger(logger *slog.Logger)
}

// The errors of [Link.Send].
var (
	ErrUnknownNode = errors.New("transport: no address for this node")
	ErrFrameSize   = errors.New("transport: frame is empty or larger than the link takes")
	ErrFull        = errors.New("transport: too much is queued for this node")
	ErrClosed      = errors.New("transport: link is closed")
)
