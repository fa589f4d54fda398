package session

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dmutex/dmutex/internal/msgp"
)

// Here the real sessions of two nodes go through everything that can happen to
// them, within a budget of messages, restarts and challenges.
//
// The network is the set of all frames ever sent: any of them may arrive at any
// time, again and again, or never, which is loss, repetition and reordering in
// one. Time stands still, and a timer that is set may go off at any moment, so
// nothing depends on how long anything takes; the timeouts are all equal, so
// that round trips that were measured do not matter either.

// budget bounds an exploration.
type budget struct {
	messages   [2]int // of each life
	restarts   [2]int
	closes     [2]int // 1 if the side may close
	challenges uint64 // of each life: states beyond are not followed
	window     int
}

const maxLives = 3

// A world is a state of everything, with enough of its past to judge it.
type world struct {
	budget *budget
	ends   [2]*Session
	net    [2]frameSet // by receiver
	life   [2]int      // present life of each node, from 0
	sends  [2]int      // messages accepted in it
	closed [2]bool
	gone   [2]bool // since it was done
	tired  [2]bool // its patience is at an end
	taken  [2]int  // messages delivered before that, of the present pair

	adopted [2]int // newest life of the peer ever adopted, by any life; -1 if none
	heard   [2]int // newest life of the peer that anything was delivered from; -1 if none

	// By sender, life of the sender, life of the receiver: how many messages
	// the sender had accepted, and dropped, when it adopted the receiver (-1 if
	// it has not), and how many were delivered since.
	first [2][maxLives][maxLives]int
	got   [2][maxLives][maxLives]int
	fault string
}

// frameSet is a set of frames by their number in the explorer's table.
type frameSet [8]uint64

func (f *frameSet) add(i int)           { f[i/64] |= 1 << (i % 64) }
func (f *frameSet) contains(i int) bool { return f[i/64]&(1<<(i%64)) != 0 }

func incarnation(side, life int) uint64 { return uint64(10*(side+1) + life) }

func newWorld(b *budget) *world {
	w := &world{budget: b, adopted: [2]int{-1, -1}, heard: [2]int{-1, -1}}
	for side := range w.first {
		for i := range w.first[side] {
			for j := range w.first[side][i] {
				w.first[side][i][j] = -1
			}
		}
		w.begin(side)
	}
	return w
}

// begin starts the present life of a node.
func (w *world) begin(side int) {
	s, err := New(Config{
		Incarnation: incarnation(side, w.life[side]),
		Group:       group,
		MaxFrame:    minFrame,
		Window:      w.budget.window,
		AckDelay:    1,
		MinTimeout:  1,
		MaxTimeout:  1,
		Grace:       8,
	})
	if err != nil {
		panic(err)
	}
	w.ends[side], w.sends[side], w.closed[side], w.gone[side], w.tired[side], w.taken[side] = s, 0, false, false, false, 0
}

// fork returns a copy in which something can happen to one side. The other
// session is shared.
func (w *world) fork(side uint8) *world {
	c := *w
	c.ends[side] = c.ends[side].clone()
	return &c
}

func (s *Session) clone() *Session {
	c := *s
	c.out = slices.Clone(s.out)
	c.flight = slices.Clone(s.flight)
	c.early = slices.Clone(s.early)
	for i := range c.early {
		c.early[i].body = slices.Clone(c.early[i].body)
	}
	c.former = slices.Clone(s.former)
	c.in = nil
	return &c
}

// appendState appends all that decides what the session will do, given that
// time stands still at 0 and all timeouts are equal.
func (s *Session) appendState(b []byte) []byte {
	b = appendInts(b, s.cfg.Incarnation, s.peer, s.nonce, s.answer.to, s.answer.nonce,
		s.base, s.next, max(s.base, s.behind), s.acked, s.sent, s.finSeq, s.expect, s.heard, s.heardAtClose)
	b = appendInts(b, s.flying, min(s.debt, s.cfg.Window/4+1), s.ahead, s.repeats)
	b = appendInts(b, s.floor, s.knock.from, s.knock.nonce, s.rival, s.rivalAsked, s.rivalNonce, s.refusal.to, s.refusal.nonce)
	b = appendInts(b, s.former...)
	b = appendBools(b, s.hellos > 0, s.rival != 0 && s.graceEnd <= 0, s.answered, s.closed, s.repair, s.left, s.settled, s.handed, s.resentAt == always)
	for _, timer := range [...]int64{s.helloAt, s.resendAt, s.ackAt} {
		b = appendBools(b, timer <= 0, timer == never)
	}
	b = append(b, s.out[s.start:]...)
	for seq := s.base; seq < s.next; seq++ {
		b = appendInts(b, s.inFlight(seq).size)
		b = appendBools(b, s.inFlight(seq).again)
	}
	for seq := s.expect + 1; s.ahead > 0 && seq < s.expect+uint64(s.cfg.Window); seq++ {
		if e := s.earlyAt(seq); e.seq == seq {
			b = appendInts(b, e.seq, uint64(e.count), e.heard)
			b = appendBools(b, e.fin)
			b = append(b, e.body...)
		}
	}
	return b
}

func (w *world) appendState(b []byte) []byte {
	for side := range w.ends {
		b = w.ends[side].appendState(b)
		b = appendInts(b, w.net[side][:]...)
		b = appendInts(b, w.life[side], w.sends[side], w.adopted[side], w.heard[side], w.taken[side])
		b = appendBools(b, w.closed[side], w.gone[side], w.tired[side])
		for life := range w.first[side] {
			b = appendInts(b, w.first[side][life][:]...)
			b = appendInts(b, w.got[side][life][:]...)
		}
	}
	return b
}

func appendInts[T int | uint64](b []byte, list ...T) []byte {
	for _, v := range list {
		b = binary.AppendUvarint(b, uint64(v))
	}
	return b
}

func appendBools(b []byte, list ...bool) []byte {
	for _, v := range list {
		if v {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// An action is one thing that can happen.
type action struct {
	kind  actionKind
	side  uint8
	frame uint16 // of deliver
}

type actionKind uint8

const (
	begin actionKind = iota
	doSend
	doFlush
	doDeliver
	doHello // a timer goes off
	doResend
	doAck
	doGrace
	doClose
	doGo
	doRestart
)

// An explorer walks through all states.
type explorer struct {
	budget
	mutant mutant // nil for the real rules
	table  [2][][]byte
	number [2]map[string]int
	fair   int // every how many states it is tried whether all ends well; 0 for never
}

// A mutant breaks one rule, by what it does to frames on their way: in returns
// the frames that a session gets to see in place of one, out the one that it
// sends in place of one.
type mutant interface {
	in(s *Session, frame []byte) [][]byte
	out(s *Session, frame []byte) []byte
}

type outcome struct {
	states, steps, cut int
	depth              int
	fault              string
	trace              []string
}

type visited struct {
	parent int32
	depth  int32
	action action
}

func (e *explorer) run(t testing.TB) (o outcome) {
	e.number = [2]map[string]int{make(map[string]int), make(map[string]int)}
	seen := make(map[[16]byte]bool)
	var log []visited
	type entry struct {
		world *world
		index int32
	}
	var queue []entry
	var text []byte
	visit := func(w *world, parent int32, a action) bool {
		text = w.appendState(text[:0])
		sum := sha256.Sum256(text)
		key := [16]byte(sum[:16])
		if seen[key] && w.fault == "" {
			return true
		}
		seen[key] = true
		depth := int32(0)
		if parent >= 0 {
			depth = log[parent].depth + 1
		}
		index := int32(len(log))
		log = append(log, visited{parent, depth, a})
		o.depth = int(depth)
		if w.fault == "" && e.fair > 0 && len(log)%e.fair == 0 {
			w.fault = e.ends(w.fork(0).fork(1))
		}
		if w.fault != "" {
			o.fault = w.fault
			for i := index; i >= 0; i = log[i].parent {
				o.trace = append(o.trace, e.describe(log[i].action))
			}
			slices.Reverse(o.trace)
			return false
		}
		if w.ends[0].nonce > e.challenges || w.ends[1].nonce > e.challenges {
			o.cut++
			return true
		}
		queue = append(queue, entry{w, index})
		return true
	}
	visit(newWorld(&e.budget), -1, action{})
	for len(queue) > 0 && o.fault == "" {
		at := queue[0]
		queue[0] = entry{}
		queue = queue[1:]
		for _, a := range e.actions(at.world) {
			w := at.world.fork(a.side)
			e.do(w, a)
			o.steps++
			if !visit(w, at.index, a) {
				break
			}
		}
	}
	o.states = len(log)
	return o
}

// actions returns what can happen next.
func (e *explorer) actions(w *world) (list []action) {
	for i, s := range w.ends {
		side := uint8(i)
		add := func(possible bool, kind actionKind) {
			if possible {
				list = append(list, action{kind: kind, side: side})
			}
		}
		add(w.life[i] < e.restarts[i], doRestart)
		if w.gone[i] {
			continue
		}
		add(w.sends[i] < e.messages[i] && !s.closed && !s.left, doSend)
		add(s.Deadline() <= 0, doFlush)
		add(s.helloAt != never && s.helloAt > 0, doHello)
		add(s.resendAt != never && s.resendAt > 0, doResend)
		add(s.ackAt != never && s.ackAt > 0, doAck)
		add(s.rival != 0 && s.graceEnd > 0, doGrace)
		add(!w.closed[i] && e.closes[i] > 0, doClose)
		add(s.Done(), doGo)
		for f := range e.table[i] {
			if w.net[i].contains(f) {
				list = append(list, action{doDeliver, side, uint16(f)})
			}
		}
	}
	return list
}

// do makes an action happen to a world.
func (e *explorer) do(w *world, a action) {
	side := int(a.side)
	s := w.ends[side]
	switch a.kind {
	case doSend:
		w.send(side)
		return // that it waits for what is sent next is one of the things that can happen
	case doDeliver:
		e.deliver(w, side, 0, e.table[side][a.frame])
	case doHello:
		s.helloAt = 0
	case doResend:
		s.resendAt = 0
	case doAck:
		s.ackAt = 0
	case doGrace:
		s.graceEnd, s.doubtEnd = 0, s.cfg.Grace
	case doClose:
		s.Close(0)
		w.closed[side] = true
		if s.Peer() != 0 {
			w.taken[side] = w.got[1-side][s.Peer()%10][w.life[side]]
		}
	case doGo:
		w.gone[side] = true
		return
	case doRestart:
		w.life[side]++
		w.begin(side)
	}
	e.flush(w, side)
}

func (w *world) send(side int) {
	w.sends[side]++
	if err := w.ends[side].Send(0, []byte{byte(w.life[side]), byte(w.sends[side])}); err != nil {
		w.blame("send refused: %v", err)
	}
}

// flush puts all that a session has to say into the network.
func (e *explorer) flush(w *world, side int) {
	patient := w.ends[side].repeats > 0
	frames := flush(w.ends[side], 0)
	if patient && w.ends[side].repeats == 0 {
		w.tired[side] = true
	}
	for _, frame := range frames {
		if e.mutant != nil {
			frame = e.mutant.out(w.ends[side], frame)
		}
		to := 1 - side
		i, known := e.number[to][string(frame)]
		if !known {
			i = len(e.table[to])
			e.number[to][string(frame)] = i
			e.table[to] = append(e.table[to], frame)
			if i == 64*len(frameSet{}) {
				panic("more frames than a frameSet holds")
			}
		}
		w.net[to].add(i)
	}
}

// deliver gives a frame to a session and judges what comes of it.
func (e *explorer) deliver(w *world, side int, now int64, frame []byte) {
	if e.mutant == nil {
		w.handle(side, now, frame)
		return
	}
	for _, f := range e.mutant.in(w.ends[side], frame) {
		before := w.fault
		w.handle(side, now, f)
		if strings.HasPrefix(w.fault, "refused") {
			w.fault = before // a mutant may well get what it should not
		}
	}
}

func (w *world) handle(side int, now int64, frame []byte) {
	s := w.ends[side]
	in, err := s.Handle(now, frame)
	if err != nil {
		w.blame("refused a frame of a correct peer: %v", err)
		return
	}
	s.repeats = min(s.repeats, w.budget.closes[side]) // more brings nothing new, nor does the patience of one that stays
	w.tired[side] = w.tired[side] && s.repeats == 0
	me, from := w.life[side], 1-side
	if in.Event == Taken {
		w.blame("node %d believes that another life of it was alive", side)
	}
	if in.Event == Met || in.Event == Restarted {
		peer := int(s.Peer() % 10)
		if peer < w.adopted[side] {
			w.blame("node %d went back from life %d of its peer to life %d", side, w.adopted[side], peer)
		}
		w.adopted[side] = peer
		w.first[side][me][peer] = 0
		if in.Event == Restarted {
			w.first[side][me][peer] = w.sends[side]
		}
		w.taken[side] = 0 // what was delivered to a Close is of the former peer
	}
	if in.Event == Left && int(s.Peer()%10) == w.life[from] && int(s.Acked()) != w.taken[from] {
		w.blame("node %d believes that %d messages were delivered before its peer closed, but %d were", side, s.Acked(), w.taken[from])
	}
	for _, m := range in.Messages {
		life, number := int(m[0]), int(m[1])
		first, got := w.first[from][life][me], w.got[from][life][me]
		switch {
		case first < 0:
			w.blame("node %d got message %d of life %d that was not meant for it", side, number, life)
		case number != first+got+1:
			w.blame("node %d got message %d of life %d, expected %d", side, number, life, first+got+1)
		case life < w.heard[side]:
			w.blame("node %d got a message of life %d after one of life %d", side, life, w.heard[side])
		}
		w.heard[side] = life
		w.got[from][life][me]++
	}
	if peer := int(s.Peer() % 10); s.Peer() != 0 && int(s.Acked()) > w.got[side][me][peer] {
		w.blame("node %d believes that %d messages were delivered, but %d were", side, s.Acked(), w.got[side][me][peer])
	}
}

func (w *world) blame(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// ends lets the world go on with no more restarts, over a network that loses
// nothing, and returns what has gone wrong if it does not come to rest with
// every message delivered.
func (e *explorer) ends(w *world) (fault string) {
	var here []int
	for side, s := range w.ends {
		other := w.ends[1-side]
		switch {
		case !w.gone[side]:
			here = append(here, side)
		case other.Peer() != s.cfg.Incarnation, w.tired[side] && !s.settled:
			return "" // the other never knew it, or may wait for it
		}
		if !s.closed && !s.left {
			w.send(side) // otherwise two that have lost each other need not notice
		}
	}
	now := int64(0)
	for range 100 {
		for quiet := false; !quiet; {
			quiet = true
			for _, side := range here {
				for _, frame := range flush(w.ends[side], now) {
					quiet = false
					if !w.gone[1-side] {
						e.deliver(w, 1-side, now, frame)
					}
				}
			}
		}
		if w.fault != "" {
			return w.fault
		}
		next := int64(math.MaxInt64)
		for _, side := range here {
			next = min(next, w.ends[side].Deadline())
		}
		if next == math.MaxInt64 {
			return w.unfinished()
		}
		now = max(now, next)
	}
	return "it does not come to rest"
}

// unfinished says what is wrong in a world at rest.
func (w *world) unfinished() string {
	for side, s := range w.ends {
		me, peer := w.life[side], w.life[1-side]
		other := w.ends[1-side]
		switch {
		case s.closed && !s.Done():
			return fmt.Sprintf("node %d has closed and is not done", side)
		case s.closed && s.Peer() != 0 && !other.left && !s.left:
			return fmt.Sprintf("node %d has closed, and the other has not noticed", side)
		case s.left || s.closed && s.Peer() == 0:
			// Nobody listens.
		case s.Peer() != other.cfg.Incarnation:
			return fmt.Sprintf("node %d has not met its peer", side)
		case s.Backlog() > 0:
			return fmt.Sprintf("node %d has something left to send", side)
		case w.got[side][me][peer] != w.sends[side]-w.first[side][me][peer]:
			return fmt.Sprintf("not all of what node %d sent was delivered", side)
		}
	}
	return ""
}

// describe writes an action down, for the trace of a run that fails.
func (e *explorer) describe(a action) string {
	node := "node " + strconv.Itoa(int(a.side))
	switch a.kind {
	case doSend:
		return node + " sends"
	case doFlush:
		return node + " transmits"
	case doDeliver:
		return node + " gets " + show(e.table[a.side][a.frame])
	case doHello:
		return node + " repeats its challenge"
	case doResend:
		return node + " times out"
	case doAck:
		return node + " acknowledges"
	case doGrace:
		return node + " has waited for its peer"
	case doClose:
		return node + " closes"
	case doGo:
		return node + " is gone"
	case doRestart:
		return node + " restarts"
	default:
		return "begin"
	}
}

// show writes a frame as the package comment does.
func show(frame []byte) string {
	ints, body := split(frame)
	names := map[kind]string{hello: "HELLO", helloAck: "HELLOACK", ack: "ACK", data: "DATA", fin: "FIN", bye: "BYE", gap: "GAP", taken: "TAKEN"}
	return fmt.Sprintf("%s%v %x", names[kind(ints[0])], ints[1:], body)
}

// split takes a frame apart, without judging it, into its integers and the
// messages after them.
func split(frame []byte) (ints []uint64, body []byte) {
	r := msgp.NewReader(frame)
	n := r.Array(len(frame))
	switch kind(frame[1]) {
	case data:
		n = dataFields
	case fin:
		n = finFields
	}
	for range n {
		ints = append(ints, r.Uint())
	}
	return ints, r.Rest()
}

// join makes a frame of what split returned.
func join(ints []uint64, body []byte) []byte {
	count := 0
	for r := msgp.NewReader(body); len(r.Rest()) > 0; count++ {
		r.Bin(len(body))
	}
	return append(appendFields(nil, count, kind(ints[0]), ints[1:]...), body...)
}

func (b budget) String() string {
	return fmt.Sprintf("messages %v, restarts %v, closes %v, challenges %d, window %d",
		b.messages, b.restarts, b.closes, b.challenges, b.window)
}
