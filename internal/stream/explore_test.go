package stream

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/search"
)

// Here the real streams of the processes of two nodes go through everything that can
// happen to them, within a budget of messages, processes and closes.
//
// The network is the set of all frames ever sent: any of them may arrive at any process
// of its node, at any time, again and again, or never. That is loss, repetition,
// reordering and two processes with one number in one. Time stands still, and a timer
// that is set may go off at any moment, so nothing depends on how long anything takes.

const maxLives = 3

// A budget bounds an exploration.
type budget struct {
	lives    [2]int // processes of each node
	messages [2]int // of each process
	closes   [2]int // 1 if the node's processes may close
	twins    bool   // a process may start while a former one lives
	paused   bool   // a live process may fail to answer in time
	window   int    // 0: the default
}

func (b budget) String() string {
	text := fmt.Sprintf("lives %v, messages %v, closes %v", b.lives, b.messages, b.closes)
	if b.window > 0 {
		text += fmt.Sprintf(", window %d", b.window)
	}
	if b.twins {
		text += ", twins"
	}
	if b.paused {
		text += ", paused"
	}
	return text
}

// A game is what all worlds of an exploration share.
type game struct {
	budget
	mutant mutation // empty for the real rules
	frames [2][][]byte
	number [2]map[string]int
	fair   int // check tries one in so many states; 0 for none
	states int
}

// A world is a state of everything, with enough of its past to judge it.
type world struct {
	*game
	net   [2]frameSet // by receiver
	procs [2][maxLives]process

	adopted [2]int // newest life of the peer ever adopted, by any life; -1 if none
	heard   [2]int // newest life of the peer that anything was delivered from; -1 if none

	// By sender, life of the sender, life of the receiver: how many messages the sender
	// had accepted, and dropped, when it adopted the receiver (-1 if it has not), and how
	// many were delivered since.
	first [2][maxLives][maxLives]int
	got   [2][maxLives][maxLives]int
}

// A process is one life of a node.
type process struct {
	s       *Stream
	state   state
	sends   int    // messages accepted
	closed  bool   // Close was called
	tired   bool   // its patience is at an end
	refused uint64 // by the last Taken
}

type state uint8

const (
	unborn state = iota
	alive
	gone // it was done
	dead
)

// frameSet is a set of frames by their number in the game's table.
type frameSet [8]uint64

func (f *frameSet) add(i int)           { f[i/64] |= 1 << (i % 64) }
func (f *frameSet) contains(i int) bool { return f[i/64]&(1<<(i%64)) != 0 }

func lifeOf(side, life int) uint64 { return uint64(10*(side+1) + life) }

func index(life uint64) int { return int(life % 10) }

func newWorld(g *game) *world {
	g.number = [2]map[string]int{make(map[string]int), make(map[string]int)}
	w := &world{game: g, adopted: [2]int{-1, -1}, heard: [2]int{-1, -1}}
	for side := range w.first {
		for i := range w.first[side] {
			for j := range w.first[side][i] {
				w.first[side][i][j] = -1
			}
		}
		w.begin(side, 0)
	}
	return w
}

func (w *world) begin(side, life int) {
	s := New(Config{Life: lifeOf(side, life), MaxLife: math.MaxUint64, Versions: protocol.Spoken, Settings: settings, MaxFrame: header + 15}) // three messages
	s.stats.RoundTrip = 1
	s.pace = pace{cmp.Or(w.window, math.MaxInt), 0, 0, 1, 1, 2, 2}
	if w.paused {
		s.pace.maxTimeout = 2
	}
	if w.mutant.noGrace {
		s.pace.grace, s.pace.trips = 0, 0
	}
	w.procs[side][life] = process{s: s, state: alive}
}

func (w *world) Clone(*world) *world {
	c := *w
	for side := range c.procs {
		for i := range c.procs[side] {
			if p := &c.procs[side][i]; p.state == alive {
				p.s = p.s.clone()
			}
		}
	}
	return &c
}

func (s *Stream) clone() *Stream {
	c := *s
	c.out = slices.Clone(s.out)
	c.in = nil
	return &c
}

// appendState appends all that decides what the stream will do, given that
// time stands still at 0 and round trips are not measured.
func (s *Stream) appendState(b []byte) []byte {
	if s.again >= inVain {
		panic("the stream goes back in vain so often that the state must have it")
	}
	b = appendInts(b, s.peer, s.rival.life, s.answer.to, s.answer.other, s.acked, s.next, s.sent, s.heard, s.early, max(s.timed.seq, s.acked+1))
	b = appendInts(b, s.flying, min(s.backoff, 2)+1, s.repeats+1)
	b = appendBools(b, s.closed, s.left, s.timed.at == always, s.wentBackAt == always)
	for _, timer := range append(s.at[:], s.rival.until) {
		b = appendBools(b, timer <= 0, timer == due.Never)
	}
	return append(b, s.out[s.start:]...)
}

// AppendState appends what may decide the future.
func (w *world) AppendState(b []byte) []byte {
	for side := range w.procs {
		for i := range w.procs[side] {
			p := &w.procs[side][i]
			if b = append(b, byte(p.state)); p.state == unborn {
				continue
			}
			if p.state == alive {
				b = p.s.appendState(b)
			}
			b = appendInts(b, p.sends)
			b = appendInts(b, p.refused)
			b = appendBools(b, p.closed, p.tired)
		}
		b = appendInts(b, w.net[side][:]...)
		b = appendInts(b, w.adopted[side]+1, w.heard[side]+1)
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

// A step is one thing that can happen.
type step struct {
	kind  stepKind
	side  uint8
	life  uint8
	frame uint16 // of doDeliver
}

type stepKind uint8

const (
	doStart stepKind = iota
	doDie
	doSend
	doTransmit
	doHello // a timer goes off, in the order of the table
	doAnswer
	doResend
	doAck
	doGrace
	doForget // the place of a rival is lost
	doClose
	doGo
	doDeliver
)

// Steps appends what can happen next.
func (w *world) Steps(list []step) []step {
	for side := range w.procs {
		born := 0
		for life := range w.procs[side] {
			p := &w.procs[side][life]
			add := func(possible bool, kind stepKind) {
				if possible {
					list = append(list, step{kind: kind, side: uint8(side), life: uint8(life)})
				}
			}
			switch p.state {
			case unborn:
				add(life == born && life < w.lives[side] && (w.twins || !w.lives1(side)), doStart)
				continue
			case gone, dead:
				born++
				continue
			}
			born++
			s := p.s
			add(life+1 < w.lives[side], doDie)
			add(p.sends < w.messages[side] && !s.closed && !s.left, doSend)
			add(s.Deadline() <= 0, doTransmit)
			for timer, at := range s.at {
				possible := timer != toReplace || w.paused || w.procs[1-side][index(s.peer)].state != alive
				add(at != due.Never && at > 0 && possible, doHello+stepKind(timer))
			}
			add(s.at[toReplace] == due.Never && s.rival.until > 0, doForget)
			add(!p.closed && w.closes[side] > 0, doClose)
			add(s.Done(), doGo)
			for f := range w.frames[side] {
				if w.net[side].contains(f) {
					list = append(list, step{doDeliver, uint8(side), uint8(life), uint16(f)})
				}
			}
		}
	}
	return list
}

// lives1 reports whether a process of the node is alive.
func (w *world) lives1(side int) bool {
	return slices.ContainsFunc(w.procs[side][:], func(p process) bool { return p.state == alive })
}

// Do takes a step.
func (w *world) Do(a step) error {
	side, life := int(a.side), int(a.life)
	p := &w.procs[side][life]
	s := p.s
	switch a.kind {
	case doStart:
		w.begin(side, life)
	case doDie:
		p.state = dead
		return nil
	case doSend:
		return w.send(side, life) // without flush: the message may wait for the next one
	case doDeliver:
		if err := w.deliver(side, life, 0, w.frames[side][a.frame]); err != nil {
			return err
		}
	case doHello, doAnswer, doResend, doAck, doGrace:
		s.at[a.kind-doHello] = 0
	case doForget:
		s.forget(0)
	case doClose:
		s.Close()
		p.closed = true
	case doGo:
		p.state = gone
		return nil
	}
	w.flush(side, life)
	return nil
}

var errWrong = errors.New("a rule is broken")

func blame(format string, args ...any) error { return search.Wrong(errWrong, format, args...) }

func (w *world) send(side, life int) error {
	p := &w.procs[side][life]
	p.sends++
	if err := p.s.Send([]byte{byte(life), byte(p.sends)}); err != nil {
		return blame("send refused: %v", err)
	}
	return nil
}

// flush puts all that a stream has to say into the network.
func (w *world) flush(side, life int) {
	p := &w.procs[side][life]
	patient := p.s.repeats > 0
	frames := flush(p.s, 0)
	if patient && p.s.repeats == 0 {
		p.tired = true
	}
	to := 1 - side
	for _, frame := range frames {
		frame = w.mutant.sent.apply(p.s, frame)
		i, known := w.number[to][string(frame)]
		if !known {
			i = len(w.frames[to])
			w.number[to][string(frame)] = i
			w.frames[to] = append(w.frames[to], frame)
			if i == 64*len(frameSet{}) {
				panic("more frames than a frameSet holds")
			}
		}
		w.net[to].add(i)
	}
}

// deliver gives a frame to a stream and judges what comes of it.
func (w *world) deliver(side, life int, now int64, frame []byte) error {
	p := &w.procs[side][life]
	s := p.s
	former := s.peer
	said, _ := split(frame)
	if frame = w.mutant.in(s, frame); frame == nil {
		return nil
	}
	in, err := s.Handle(now, frame)
	if err != nil {
		if w.mutant.breaks() {
			return nil // a mutant may well get what it should not
		}
		return blame("refused a frame of a correct peer: %v", err)
	}
	if s.repeats > 0 { // it matters only whether there are any, and only if the stream may close
		s.repeats = min(s.repeats, w.closes[side])
	}
	p.tired = p.tired && s.repeats <= 0
	from := 1 - side
	peer := index(s.peer)
	switch {
	case in.Taken != 0:
		p.refused = in.Taken
		if other := &w.procs[from][peer]; sender(said) <= s.peer && in.Taken < s.cfg.Life && other.state == alive && other.s.peer == s.cfg.Life && w.got[from][peer][life] > 0 {
			return blame("%s believes a refusal that is out of date", name(side, life))
		}
	case in.Met != 0:
		if s.peer < former || !w.twins && peer < w.adopted[side] {
			return blame("%s went back to life %d of its peer", name(side, life), peer)
		}
		if former != 0 && !w.paused && w.procs[from][index(former)].state == alive && !w.procs[from][index(former)].closed {
			return blame("%s replaced a peer that still answers", name(side, life))
		}
		w.adopted[side] = max(w.adopted[side], peer)
		w.first[side][life][peer] = 0
		if former != 0 {
			w.first[side][life][peer] = p.sends
		}
	}
	for _, m := range in.Messages {
		sender, number := int(m[0]), int(m[1])
		first, got := w.first[from][sender][life], w.got[from][sender][life]
		switch {
		case first < 0:
			return blame("%s got message %d of life %d that was not meant for it", name(side, life), number, sender)
		case number != first+got+1:
			return blame("%s got message %d of life %d, expected %d", name(side, life), number, sender, first+got+1)
		case !w.twins && sender < w.heard[side]:
			return blame("%s got a message of life %d after one of life %d", name(side, life), sender, w.heard[side])
		}
		w.heard[side] = max(w.heard[side], sender)
		w.got[from][sender][life]++
	}
	if s.peer != 0 && int(s.Acked()) > w.got[side][life][peer] {
		return blame("%s believes that %d messages were delivered, but %d were", name(side, life), s.Acked(), w.got[side][life][peer])
	}
	return nil
}

// check lets some worlds go on in time, over a network that loses nothing, without
// further restarts. They must come to rest with every message delivered, and every
// process either met or refused.
func (w *world) check() error {
	if w.states++; w.fair == 0 || w.states%w.fair != 0 {
		return nil
	}
	silent := 2   // no side
	if !w.twins { // a process that says nothing need not learn that it is not the peer
		silent = w.states / w.fair % 3
	}
	w = w.Clone(nil)
	now := int64(0)
	for round := range 60 {
		for side := range w.procs {
			for life := range w.procs[side] {
				p := &w.procs[side][life]
				if p.state == alive && round%20 == 0 && side != silent && !p.s.closed && !p.s.left { // otherwise two that have lost each other need not notice
					if err := w.send(side, life); err != nil {
						return err
					}
				}
			}
		}
		for quiet := false; !quiet; {
			quiet = true
			for side := range w.procs {
				for life := range w.procs[side] {
					if w.procs[side][life].state != alive {
						continue
					}
					for _, frame := range flush(w.procs[side][life].s, now) {
						quiet = false
						for to := range w.procs[1-side] {
							if w.procs[1-side][to].state == alive {
								if err := w.deliver(1-side, to, now, frame); err != nil {
									return err
								}
							}
						}
					}
				}
			}
		}
		next := int64(math.MaxInt64)
		for side := range w.procs {
			for life := range w.procs[side] {
				if p := &w.procs[side][life]; p.state == alive {
					next = min(next, p.s.Deadline())
				}
			}
		}
		if next == math.MaxInt64 {
			next = now + 1
		}
		now = max(now, next)
	}
	for side := range w.procs {
		for life := range w.procs[side] {
			if why := w.unfinished(side, life); why != "" {
				return blame("%s", why)
			}
		}
	}
	return nil
}

// unfinished says what is wrong with a process of a world at rest.
func (w *world) unfinished(side, life int) string {
	p, name := &w.procs[side][life], name(side, life)
	s := p.s
	if p.state != alive {
		return ""
	}
	var other *process // the newest that is alive
	for i := range w.procs[1-side] {
		if o := &w.procs[1-side][i]; o.state == alive {
			other = o
		} else if o.state == gone && o.tired {
			return "" // we may wait for its last word
		}
	}
	switch {
	case other == nil:
		return ""
	case s.closed && !s.Done():
		return name + " has closed and is not done"
	case s.closed || s.left || other.closed || other.s.left:
		return ""
	case p.refused != 0:
		return ""
	case other.refused != 0 && w.twins:
		return ""
	case s.peer == 0 || s.peer != other.s.cfg.Life || other.s.peer != s.cfg.Life:
		return name + " has neither met its peer nor was it refused"
	case s.Backlog() > 0:
		return name + " has something left to send"
	case w.got[side][life][index(s.peer)] != p.sends-w.first[side][life][index(s.peer)]:
		return "not all of what " + name + " sent was delivered"
	}
	return ""
}

func name(side, life int) string { return fmt.Sprintf("process %c%d", 'a'+side, life) }

// Tell writes a step down.
func (w *world) Tell(b []byte, a step, _ *world) []byte {
	b = append(b, name(int(a.side), int(a.life))...)
	what := [...]string{" starts", " dies", " sends", " transmits", " asks again", " answers", " times out", " acknowledges",
		" has waited for its peer", " forgets a rival", " closes", " is gone", " gets "}[a.kind]
	b = append(b, what...)
	if a.kind == doDeliver {
		b = append(b, show(w.frames[a.side][a.frame])...)
	}
	return append(b, '\n')
}

// explore visits all worlds, and returns how many there are.
func (g *game) explore() (states int, err error) {
	report, err := search.Search[*world, step]{
		First:  newWorld(g),
		State:  (*world).check,
		Script: func(told string, _ *world, _ *search.Violation) string { return told },
	}.Run()
	return report.States, err
}

// show writes a frame as the package comment does.
func show(frame []byte) string {
	ints, body := split(frame)
	names := [...]string{hello: "HELLO", refused: "REFUSED", ack: "ACK", data: "DATA", fin: "FIN", bye: "BYE", gap: "GAP", push: "PUSH"}
	return fmt.Sprintf("%s%v %x", names[ints[0]], ints[1:], body)
}

// split takes a frame apart, without judging it, into its integers and the
// messages after them.
func split(frame []byte) (ints []uint64, body []byte) {
	n := 4
	switch kind(frame[0]) {
	case hello, data, fin, push:
		n = 5
	}
	r := reader{rest: frame}
	for range n {
		ints = append(ints, r.uint())
	}
	return ints, r.rest
}

// join makes a frame of what split returned.
func join(ints []uint64, body []byte) []byte {
	return append(appendFields(nil, kind(ints[0]), ints[1:]...), body...)
}
