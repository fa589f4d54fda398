package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/session"
)

// Config says what a node is part of. Members, Algorithm, Group, Fence and
// Deadlock must be the same at all members; nodes that differ refuse to meet,
// with [ErrConfig].
type Config struct {
	Self      dmutex.NodeID    // this node
	Members   []dmutex.NodeID  // all nodes of the group, this one among them, in any order
	Algorithm dmutex.Algorithm // such as ricart.New
	Link      transport.Link   // not yet opened; the node opens it, and closes it in Close

	// Group tells apart groups that share a network. It may be empty.
	Group string

	// Fence is a floor: every fence will be higher. 0 is right for a first
	// start. When the whole group starts again, it must be above every fence
	// that was ever granted, seen by a resource or not: a process of the former
	// group may be paused just before its first write. So give
	// [dmutex.NextEpoch] of the highest fence that your resources have stored,
	// and store that with them before anybody starts. It is one number for all
	// members: read it once.
	Fence uint64

	// Deadlock is how long an Acquire of a [Txn] that holds something waits
	// before the node looks for a circle of transactions that wait for each
	// other, and between one look and the next. 0 never looks, and costs
	// nothing. One look costs about as many messages as an entry does for each
	// lock in the circle, so take what is long for a wait: a second rather than
	// a millisecond.
	Deadlock time.Duration

	// Trace, if not nil, records every event of this node. It costs time and
	// disk, but makes nothing wait; Close flushes it.
	Trace *trace.Recorder

	// Logger is told, rarely, what an operator wants to know; nil is silent.
	// Every record has the key node, and group if it has a name. The others
	// are peer (a node), lock (a name) and err.
	//
	//	INFO   node opened
	//	INFO   peer met                                peer
	//	INFO   group ready
	//	WARN   peer is configured differently          peer, err   once, until it is met or something else differs
	//	WARN   peer restarted                          peer        before anybody acted: later it breaks the group
	//	INFO   peer left                               peer
	//	ERROR  group broken: nothing more is granted   peer, err
	//	WARN   lock stopped                            peer, lock, err
	//	WARN   refused what no correct peer sends      peer, err
	//	WARN   lock is waited for                      lock, waited, holder, for
	//	WARN   records left out                        count
	//	INFO   node closed                             WARN with err if the farewell was cut short
	//
	// That a lock is waited for is told when the first waiter of this node has
	// waited for 10 seconds, then 20, 40 and so on, with who holds it, where that
	// is known, and for whose answers it waits and since when they are silent, see
	// [PeerStatus]. A campaign may wait for ever and is not told.
	//
	// Of what a peer can bring about as often as it likes (it differs, it
	// restarted, it left, it stopped a lock or holds it for long, its input was
	// refused) 20 records are written in a minute, and then the count of those left
	// out. A goroutine of the node's writes: a slow handler slows nothing but Close,
	// which waits for it, and which it must not call.
	Logger *slog.Logger

	// Observer is told of every wait and hold at this node; see there.
	Observer *Observer
}

// A Node is one member of a group: it takes part in all the group's locks. Its
// methods are safe for concurrent use.
type Node struct {
	cfg         Config
	start       dmutex.Start // of every machine, but for Clock and Fence
	birth       time.Time
	incarnation uint64
	sum         uint64  // see digest
	peers       []*peer // ascending by id
	seed        maphash.Seed
	locks       [shards]shard
	terms       terms
	log         *logger // nil without Config.Logger

	probes    atomic.Uint64 // that were sent
	deadlocks atomic.Uint64 // waits that were ended
	txns      atomic.Uint64 // transactions that were begun

	unmet   atomic.Int32  // peers that are to be met
	unready atomic.Int32  // peers that have not said that they have met everybody
	ready   chan struct{} // closed when there are neither
	readied int64         // when it was closed
	mute    atomic.Bool   // the group is broken: what this node says could only mislead
	cut     atomic.Bool   // the link was closed under this node
	refused atomic.Uint64 // what no correct peer sends

	mu     sync.Mutex // guards the fields below
	reason error      // why down is closed
	down   chan struct{}
	closed chan struct{} // closed when Close has finished; nil before Close

	drain   chan struct{} // poked while closing, when there may be less to wait for
	wake    chan struct{} // pokes keepTime: an earlier deadline
	planned atomic.Int64  // when keepTime will wake by itself
	stop    chan struct{} // ends keepTime
	running sync.WaitGroup
}

const shards = 64

// Open makes this process a member of the group. It does not wait for the
// other members: they may start in any order, and Acquire waits until all have
// been met. ctx bounds the opening only.
//
// It refuses a Config that is not lawful with [dmutex.ErrMisuse], and returns
// the link's error if the link cannot be opened. Then the link is the caller's
// to close.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if cfg.Algorithm == nil {
		return nil, dmutex.Misuse("Config.Algorithm is missing: choose one, such as ricart.New")
	}
	if cfg.Link == nil {
		return nil, dmutex.Misuse("Config.Link is missing: choose one, such as tcplink.New")
	}
	size := cfg.Link.MaxFrame()
	if size < minFrame {
		return nil, dmutex.Misuse(fmt.Sprintf("Config.Link takes frames of %d bytes: it must take %d", size, minFrame))
	}
	if cfg.Deadlock < 0 {
		return nil, dmutex.Misuse(fmt.Sprintf("Config.Deadlock is at least 0, not %v: 0 never looks for circles", cfg.Deadlock))
	}
	cfg.Members = slices.Sorted(slices.Values(cfg.Members))
	n := &Node{
		cfg:         cfg,
		start:       dmutex.Start{Self: cfg.Self, Members: cfg.Members, Fence: cfg.Fence},
		birth:       time.Now(),
		incarnation: draw(),
		seed:        maphash.MakeSeed(),
		ready:       make(chan struct{}),
		down:        make(chan struct{}),
		drain:       make(chan struct{}, 1),
		wake:        make(chan struct{}, 1),
		stop:        make(chan struct{}),
	}
	var err error
	if n.sum, err = n.digest(); err != nil {
		return nil, err
	}
	for i := range n.locks {
		n.locks[i] = shard{node: n, locks: table{seed: n.seed}, fence: cfg.Fence}
	}
	for _, id := range cfg.Members {
		if id == cfg.Self {
			continue
		}
		s, err := session.New(session.Config{Incarnation: n.incarnation, Group: n.sum, MaxFrame: min(size, sendBuffer), Buffer: sendBuffer})
		if err != nil {
			return nil, err
		}
		n.peers = append(n.peers, &peer{node: n, id: id, session: s})
	}
	n.unmet.Store(int32(len(n.peers)))
	n.unready.Store(int32(len(n.peers)))
	if cfg.Logger != nil {
		n.log = newLogger(&cfg)
	}
	n.note(nodeOpened, "", nil)
	if len(n.peers) == 0 {
		close(n.ready)
		n.note(groupReady, "", nil)
	}
	if err := n.openTrace(n.incarnation); err != nil {
		return nil, err
	}
	if err := n.openLink(); err != nil {
		return nil, fmt.Errorf("node: open link: %w", err)
	}
	n.running.Go(n.keepTime)
	if n.log != nil {
		n.running.Go(func() { n.log.run(n.stop) })
	}
	return n, nil
}

// draw names this life of the process.
func draw() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails
		if v := binary.BigEndian.Uint64(b[:]); v != 0 {
			return v
		}
	}
}

// Self returns this node's id.
func (n *Node) Self() dmutex.NodeID { return n.cfg.Self }

// Mutex returns the lock of that name. Every name is a lock of the whole group;
// it need not be created. A lock that nobody uses costs nothing, except where
// the algorithm has something to remember: ring and suzukikasami where the
// token is. Up to 512 that were used last are remembered all the same, and with
// them, under ricart.Carvalho, who agreed. A name has 1 to [transport.MaxName]
// bytes.
func (n *Node) Mutex(name string) *Mutex {
	hash := maphash.String(n.seed, name)
	return &Mutex{shard: n.shardOf(hash), hash: hash, name: name}
}

func (n *Node) shardOf(hash uint64) *shard { return &n.locks[hash%shards] }

func (n *Node) hash(name []byte) uint64 { return maphash.Bytes(n.seed, name) }

// Ready waits until all members have met each other, which Acquire also waits
// for. If ctx ends first, the error says who is missing and answers to ctx's
// error, and to [ErrConfig] if one of them is configured differently.
func (n *Node) Ready(ctx context.Context) error {
	if reason := n.downReason(); reason != nil {
		return reason
	}
	select {
	case <-n.ready:
		return nil
	default:
	}
	select {
	case <-n.ready:
		return nil
	case <-n.down:
		return n.downReason()
	case <-ctx.Done():
		st := n.Status()
		for _, p := range st.Peers {
			if p.Err != nil {
				return fmt.Errorf("node %d has not yet met %v: %w: %w", n.cfg.Self, st.Unmet, &PeerError{p.ID, p.Err}, ctx.Err())
			}
		}
		if len(st.Unmet) > 0 {
			return fmt.Errorf("node %d has not yet met %v: %w", n.cfg.Self, st.Unmet, ctx.Err())
		}
		return fmt.Errorf("node %d waits for %v to meet everybody: %w", n.cfg.Self, st.Unready, ctx.Err())
	}
}

// bringDown ends all granting, for the reason given. The first reason stays.
func (n *Node) bringDown(reason error) (first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reason == nil {
		n.reason, first = reason, true
		close(n.down)
		n.traceErr(trace.Down, dmutex.None, reason)
	}
	return first
}

// downReason returns why nothing is granted, nil while all is well.
func (n *Node) downReason() error {
	select {
	case <-n.down:
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.reason
	default:
		return nil
	}
}

// failClosed ends all granting because a peer has broken the group, or because
// there is no way to it any more. Held locks stay held until they are released.
func (n *Node) failClosed(why error) {
	n.mute.Store(true)
	if n.bringDown(why) {
		n.note(groupBroken, "", why)
	}
}

func (n *Node) isReady() bool {
	select {
	case <-n.ready:
		return true
	default:
		return false
	}
}

// Close leaves the group: acquisitions are refused and those that wait fail
// with [ErrClosed], locks that are still held are lost ([Held.Context] ends)
// and released, the peers are told, and every goroutine of the node has ended
// when it returns. The link is closed too; if that was done before, the peers
// cannot be told, and Close returns [transport.ErrClosed].
//
// ctx bounds the farewell, which takes until the functions of [Election.Campaign]
// have returned, until requests that were withdrawn have had their turn, so
// perhaps until other nodes have released their locks, until the peers have
// everything, and until Config.Trace is written. If ctx ends before, Close gives
// up and returns its error with whom it waited for, and locks that would wait for
// this node, and elections that it still leads, end in [ErrLeft] at every member
// that the farewell reaches; to the others this node has crashed. A second Close
// waits for the first and returns nil.
//
// Nodes may close at the same time: each waits a round trip for the last word of
// those that leave with it. If that is lost, or a peer left in a hurry or before the
// two had met, it calls that peer 12 times more, in the 2 to 24 seconds after the
// last that it heard of it, and goes. So where the network loses a frame with
// probability p, a peer that waits for word that its farewell was heard does so with
// probability p^13 until its own ctx ends, and nothing but its time is lost.
//
// Close also waits until ctx ends for a peer that has crashed, or that has found the
// group broken ([ErrRestarted]) while this node has not, and so says nothing more.
func (n *Node) Close(ctx context.Context) error {
	n.mu.Lock()
	if closed := n.closed; closed != nil {
		n.mu.Unlock()
		select {
		case <-closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n.closed = make(chan struct{})
	n.mu.Unlock()
	var lost []Hold
	defer func() {
		close(n.closed)
		n.tell(lost...) // at the end: it may take long, may panic, and may Close
	}()

	n.bringDown(ErrClosed)
	for i := range n.locks {
		lost = append(lost, n.locks[i].abandon()...)
	}
	n.flush()
	err := n.await(ctx, n.drained, n.undrained)
	for i := range n.locks {
		n.locks[i].confess()
	}
	for _, p := range n.peers {
		p.close()
	}
	n.flush()
	if err == nil {
		err = n.await(ctx, n.parted, n.unparted)
	}
	close(n.stop)
	n.running.Wait()
	if n.cut.Load() {
		err = errors.Join(err, fmt.Errorf("node: close: the peers were not told: %w", transport.ErrClosed))
	}
	err = errors.Join(err, n.cfg.Link.Close(), n.closeTrace(ctx))
	if n.log != nil {
		n.log.closed(err)
	}
	return err
}

// await waits until the condition holds. Everything that may bring it about
// pokes n.drain. missing says what is waited for.
func (n *Node) await(ctx context.Context, condition func() bool, missing func() string) error {
	for !condition() {
		select {
		case <-n.drain:
		case <-ctx.Done():
			return fmt.Errorf("node: close: %s: %w", missing(), ctx.Err())
		}
	}
	return nil
}

// drained reports whether no function leads here any more, and no withdrawn
// request of ours is left for the peers to wait for.
func (n *Node) drained() bool {
	mute := n.mute.Load()
	for i := range n.locks {
		if n.locks[i].lingers(mute) {
			return false
		}
	}
	return true
}

// undrained says what drained waits for.
func (n *Node) undrained() string {
	var held string
	var owing []dmutex.NodeID
	for i := range n.locks {
		n.locks[i].undrained(&held, &owing)
	}
	if held != "" {
		return fmt.Sprintf("the function of %q has not returned", held)
	}
	slices.Sort(owing)
	return fmt.Sprintf("requests that were withdrawn wait for %v", slices.Compact(owing))
}

// parted reports whether every peer has all that we said, or is gone.
func (n *Node) parted() bool {
	return n.mute.Load() || !slices.ContainsFunc(n.peers, (*peer).listening)
}

// unparted says what parted waits for.
func (n *Node) unparted() string {
	var ids []dmutex.NodeID
	for _, p := range n.peers {
		if p.listening() {
			ids = append(ids, p.id)
		}
	}
	return fmt.Sprintf("the last messages are not acknowledged by %v", ids)
}

func (n *Node) pokeDrain() {
	select {
	case n.drain <- struct{}{}:
	default:
	}
}
