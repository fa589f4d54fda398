// Package transport defines what a network must provide ([Link]). Packages memlink,
// tcplink and natslink are links. Packages node and channel make any of them reliable.
package transport

import (
	"errors"
	"log/slog"
	"time"

	"github.com/dmutex/dmutex"
)

// A Link carries frames to nodes, with best effort: it may lose, repeat, reorder and delay
// frames, but not alter them. Package linktest tests it. All methods are safe for concurrent use.
//
// A link with a logger does not wait for its handler: a goroutine calls it, with a queue of up
// to 256 records. If the handler is slow or stuck, the link drops records, and logs their count
// later. Only Close waits for the handler, which may call any other method of the link.
type Link interface {
	// Open begins to deliver the frames that arrive. It is called once, before the first
	// Send. It returns [dmutex.ErrMisuse] if Host.Deliver is missing, and when the link is
	// open already.
	Open(Host) error

	// Send hands a frame of 1 to MaxFrame bytes to the network. It never waits
	// for the network or for a peer, and does not keep the frame. For peers that
	// are slow or absent, the link buffers at most some megabytes. A nil error
	// does not promise that the frame arrives. An error says why the frame was
	// certainly not sent: ErrUnknownNode, ErrFrameSize, ErrFull or ErrClosed.
	Send(to dmutex.NodeID, frame []byte) error

	// MaxFrame is the size of the largest frame in bytes, at least 1024.
	MaxFrame() int

	// Trouble returns the last reason why frames to the node do not arrive, such as a
	// refused connection or certificate, and nil while nothing is known to be wrong: a
	// link may know nothing. It does not wait for the network. It may be called before Open,
	// and returns ErrClosed after Close. Package node shows it to people. Programs must not
	// act on it, because it may come from an unknown host.
	Trouble(to dmutex.NodeID) error

	// Close ends delivery and waits until no function of the Host is running and
	// every goroutine of the link has ended. Closing again does nothing.
	Close() error
}

// A Host is what a link serves, such as a node. It gives itself to the link once, in
// [Link.Open], so that a type which embeds a link and overrides some methods loses nothing. A
// link uses what it can: memlink, for example, never sees that the process of a peer has ended.
//
// The link calls the functions from its own goroutines, possibly from several at once. They may
// call all methods of the link but Close.
type Host struct {
	// Deliver takes the frames of a node that are there at the same time: one or more, in
	// order. They should be few, or small, because the answer to the first frame leaves
	// after the last one is handled. The frames and the slice are valid only during the
	// call. A call without frames tells of a stranger: see [DynamicLink.SetPeer].
	Deliver func(from dmutex.NodeID, frames [][]byte)

	// Life returns the life of this process, and the highest that is believed. A link whose
	// connections belong to one process each tells its peers the life, so that of two
	// processes with one number only one is connected to a peer. It refuses peers that
	// claim a life above the highest. If Life is nil, the life is 0, and all are believed.
	Life func() (own, highest uint64)

	// Taken, if not nil, is called when a peer keeps a connection with another process of
	// this node's number, with the life of that process if it is higher than that of
	// this one, and else with some lower life.
	Taken func(peer dmutex.NodeID, life uint64)

	// Died, if not nil, is called when the process of a peer seems to have ended. Time-outs
	// and hosts that cannot be reached do not count.
	//
	//   - tcplink: a connection with the peer was lost or refused, no other has come, and the system at
	//     its address has refused two more, Apart from each other, or 80 ms if that is less, because no
	//     process listens there.
	//   - natslink: the server says that nobody subscribes to the peer's subject, six times or
	//     more, Apart from each other.
	//
	// A firewall or a proxy may refuse connections too, and a process that goes to another
	// NATS server has no subscription meanwhile, so this is evidence, not proof. Apart is a
	// fiftieth of the lease.
	Died  func(peer dmutex.NodeID)
	Apart time.Duration

	// Logger is for a link that was made without a logger. It may be nil.
	Logger *slog.Logger
}

// A DynamicLink is a Link for members that come and go, whose numbers and addresses
// are in the record of a store. At first it has no number and no peers, and carries no
// frames. All methods may be called at any time, also by the Host and before Open, and none
// of them waits.
type DynamicLink interface {
	Link

	// Address returns the address of this node for the SetPeer of the other nodes: at most 256
	// bytes, and empty if the number is enough. A member whose address a new process has counts as dead.
	Address() string

	// Become gives this node a number, or takes it away: then self is [dmutex.None]. The
	// link forgets all peers, and no longer delivers frames for the former number. A
	// Deliver that is running may still finish. Frames for the new number may be lost at
	// first. Become returns ErrClosed after Close, and [dmutex.ErrMisuse] if the link
	// was made with a number.
	Become(self dmutex.NodeID) error

	// SetPeer adds a node to the peers, or gives it a new address. Send accepts frames
	// only for peers. SetPeer returns [dmutex.ErrMisuse] for an address that it cannot
	// use, for the node itself, and while this node has no number, and ErrClosed after
	// Close.
	//
	// A link may deliver frames from a node that is not a peer, or refuse them and call
	// Host.Deliver without frames: an unknown node wants to reach this one.
	SetPeer(id dmutex.NodeID, address string) error

	// RemovePeer removes a peer, and drops the frames that are queued for it. It
	// does nothing for a node that is not a peer.
	RemovePeer(id dmutex.NodeID)
}

// The errors of [Link.Send].
var (
	ErrUnknownNode = errors.New("transport: no address for this node")
	ErrFrameSize   = errors.New("transport: frame is empty or larger than the link takes")
	ErrFull        = errors.New("transport: too much is queued for this node")
	ErrClosed      = errors.New("transport: link is closed")
)
