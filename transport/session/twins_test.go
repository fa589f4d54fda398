package session

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Here two lives of one node are alive at once. The ends are two lives of node A,
// of which the second begins when the first has died, and two lives of node B,
// of which the second may begin at any time. A frame for a node may reach any life
// of it, any number of times, at any time.
const (
	a1 = iota
	a2
	b1
	b2
	twinEnds
)

var twinNames = [twinEnds]string{"a1", "a2", "b1", "b2"}

// A twinBudget bounds an exploration.
type twinBudget struct {
	messages   [twinEnds]int
	met        bool // a1 and b1 have met before
	restart    bool // a2 begins
	paused     bool // a live peer may fail to answer until its grace is over
	challenges uint64
	noGrace    bool
	mutant     mutant // nil for the real rules
	fair       int    // every how many states it is tried whether all ends well; 0 for never
}

type twinWorld struct {
	ends    [twinEnds]*Session
	born    [twinEnds]bool
	dead    [twinEnds]bool
	told    [twinEnds]bool // Taken
	overlap bool           // b1 was alive when b2 began
	sends   [twinEnds]int
	adopted [twinEnds][twinEnds]bool
	first   [twinEnds][twinEnds]int // messages dropped by the one when it adopted the other; -1 if it has not
	got     [twinEnds][twinEnds]int // messages of the one that the other was delivered
	net     [2]frameSet             // by receiving node
	fault   string
}

func twinLife(end int) uint64 { return uint64(10*(end/2+1) + end%2) }

func twinEnd(life uint64) int { return int(2*(life/10-1) + life%10) }

func (w *twinWorld) alive(end int) bool { return w.born[end] && !w.dead[end] }

func (w *twinWorld) begin(b *twinBudget, end int) {
	s, err := New(Config{
		Incarnation: twinLife(end), Group: group, MaxFrame: minFrame, Window: 4, AckDelay: 1, MinTimeout: 1, MaxTimeout: 1, Grace: 8,
	})
	if err != nil {
		panic(err)
	}
	if b.noGrace {
		s.cfg.Grace = 0
	}
	w.ends[end], w.born[end] = s, true
}

func (w *twinWorld) appendState(b []byte) []byte {
	for i, s := range w.ends {
		b = appendBools(b, w.born[i], w.dead[i], w.told[i])
		if w.alive(i) {
			b = s.appendState(b)
		}
		b = appendInts(b, w.sends[i])
		b = appendBools(b, w.adopted[i][:]...)
		for j := range w.ends {
			b = appendInts(b, w.first[i][j]+1, w.got[i][j])
		}
	}
	b = appendBools(b, w.overlap)
	b = appendInts(b, w.net[0][:]...)
	return appendInts(b, w.net[1][:]...)
}

type twinExplorer struct {
	twinBudget
	table  [2][][]byte
	number [2]map[string]int
}

func (e *twinExplorer) run() (o outcome) {
	type entry struct {
		world *twinWorld
		index int
	}
	type visit struct {
		parent int
		what   string
	}
	var queue []entry
	var log []visit
	e.number = [2]map[string]int{make(map[string]int), make(map[string]int)}
	seen := make(map[[16]byte]bool)
	reach := func(w *twinWorld, parent int, what string) {
		sum := sha256.Sum256(w.appendState(nil))
		key := [16]byte(sum[:16])
		if seen[key] && w.fault == "" {
			return
		}
		seen[key] = true
		log = append(log, visit{parent, what})
		if w.fault == "" && e.fair > 0 && len(log)%e.fair == 0 {
			w.fault = e.end(w.fork(a1).fork(a2).fork(b1).fork(b2))
		}
		if w.fault != "" {
			o.fault = w.fault
			for i := len(log) - 1; i >= 0; i = log[i].parent {
				o.trace = append(o.trace, log[i].what)
			}
			slices.Reverse(o.trace)
			return
		}
		for _, s := range w.ends {
			if s != nil && s.nonce > e.challenges {
				o.cut++
				return
			}
		}
		queue = append(queue, entry{w, len(log) - 1})
	}
	w := &twinWorld{}
	for i := range w.first {
		for j := range w.first[i] {
			w.first[i][j] = -1
		}
	}
	w.begin(&e.twinBudget, a1)
	w.begin(&e.twinBudget, b1)
	for e.met && (w.ends[a1].peer == 0 || w.ends[b1].peer == 0) {
		for _, frame := range flush(w.ends[a1], 0) {
			w.handle(e, b1, 0, frame)
		}
		for _, frame := range flush(w.ends[b1], 0) {
			w.handle(e, a1, 0, frame)
		}
	}
	reach(w, -1, "begin")
	for len(queue) > 0 && o.fault == "" {
		at := queue[0]
		queue[0] = entry{}
		queue = queue[1:]
		for end := range twinEnds {
			e.each(at.world, end, func(what string, do func(w *twinWorld, s *Session)) {
				if o.fault != "" {
					return
				}
				w := at.world.fork(end)
				do(w, w.ends[end])
				if w.alive(end) {
					e.flush(w, end)
				}
				o.steps++
				reach(w, at.index, twinNames[end]+" "+what)
			})
		}
	}
	o.states = len(log)
	return o
}

func (w *twinWorld) fork(end int) *twinWorld {
	c := *w
	if w.alive(end) {
		c.ends[end] = w.ends[end].clone()
	}
	return &c
}

// each yields all that can happen to an end.
func (e *twinExplorer) each(w *twinWorld, end int, yield func(what string, do func(w *twinWorld, s *Session))) {
	if !w.alive(end) {
		switch {
		case w.born[end]:
		case end == a2 && e.restart:
			yield("begins, and a1 is dead", func(w *twinWorld, _ *Session) {
				w.dead[a1] = true
				w.begin(&e.twinBudget, end)
			})
		case end == b2:
			yield("begins", func(w *twinWorld, _ *Session) {
				w.overlap = w.alive(b1)
				w.begin(&e.twinBudget, end)
			})
		}
		return
	}
	s := w.ends[end]
	timer := func(possible bool, what string, fire func(s *Session)) {
		if possible {
			yield(what, func(_ *twinWorld, s *Session) { fire(s) })
		}
	}
	timer(s.Deadline() <= 0, "transmits", func(*Session) {})
	timer(s.helloAt != never && s.helloAt > 0, "repeats its challenge", func(s *Session) { s.helloAt = 0 })
	timer(s.resendAt != never && s.resendAt > 0, "times out", func(s *Session) { s.resendAt = 0 })
	timer(s.ackAt != never && s.ackAt > 0, "acknowledges", func(s *Session) { s.ackAt = 0 })
	timer(s.rival != 0 && s.graceEnd > 0 && (e.paused || !w.alive(twinEnd(s.peer))), "has waited for its peer", func(s *Session) { s.graceEnd, s.doubtEnd = 0, s.cfg.Grace })
	if w.sends[end] < e.messages[end] {
		yield("sends", func(w *twinWorld, s *Session) { w.send(end) })
	}
	if end >= b1 {
		yield("dies", func(w *twinWorld, _ *Session) { w.dead[end] = true })
	}
	for i, frame := range e.table[end/2] {
		if w.net[end/2].contains(i) {
			yield("gets "+show(frame), func(w *twinWorld, _ *Session) { e.deliver(w, end, 0, frame) })
		}
	}
}

func (w *twinWorld) send(end int) {
	w.sends[end]++
	if err := w.ends[end].Send(0, []byte{byte(end), byte(w.sends[end])}); err != nil {
		w.blame("send refused: %v", err)
	}
}

func (e *twinExplorer) flush(w *twinWorld, end int) {
	to := 1 - end/2
	for _, frame := range flush(w.ends[end], 0) {
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

func (e *twinExplorer) deliver(w *twinWorld, end int, now int64, frame []byte) {
	frames := [][]byte{frame}
	if e.mutant != nil {
		frames = e.mutant.in(w.ends[end], frame)
	}
	for _, f := range frames {
		w.handle(e, end, now, f)
	}
}

func (w *twinWorld) handle(e *twinExplorer, end int, now int64, frame []byte) {
	s := w.ends[end]
	former := s.peer
	in, err := s.Handle(now, frame)
	if err != nil {
		w.blame("%s refused a frame of a correct peer: %v", twinNames[end], err)
		return
	}
	switch in.Event {
	case Taken:
		w.told[end] = true
		if end < b1 || !w.overlap {
			w.blame("%s believes that another life of its node was alive", twinNames[end])
		}
	case Met, Restarted:
		peer := twinEnd(s.peer)
		if in.Event == Restarted {
			w.first[end][peer] = w.sends[end]
			if !e.paused && w.alive(twinEnd(former)) {
				w.blame("%s replaced a peer that still answers", twinNames[end])
			}
		} else {
			w.first[end][peer] = 0
		}
		if w.adopted[end][peer] {
			w.blame("%s adopted %s again", twinNames[end], twinNames[peer])
		}
		w.adopted[end][peer] = true
	}
	for _, m := range in.Messages {
		from, number := int(m[0]), int(m[1])
		if first, got := w.first[from][end], w.got[from][end]; first < 0 || number != first+got+1 {
			w.blame("%s got message %d of %s, expected %d", twinNames[end], number, twinNames[from], first+got+1)
		}
		w.got[from][end]++
	}
	if s.peer != 0 && int(s.Acked()) > w.got[end][twinEnd(s.peer)] {
		w.blame("%s believes that %d messages were delivered", twinNames[end], s.Acked())
	}
}

func (w *twinWorld) blame(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// end lets everybody who is alive send and hear everything, in time, and returns
// what is wrong unless each life of B is the peer or knows that it is not.
func (e *twinExplorer) end(w *twinWorld) (fault string) {
	now := int64(0)
	for round := range 60 {
		for end := range twinEnds {
			if w.alive(end) && round%20 == 0 { // a life that says nothing need not learn anything
				w.send(end)
			}
		}
		for quiet := false; !quiet && w.fault == ""; {
			quiet = true
			for end := range twinEnds {
				if !w.alive(end) {
					continue
				}
				for _, frame := range flush(w.ends[end], now) {
					quiet = false
					for to := range twinEnds {
						if to/2 != end/2 && w.alive(to) {
							e.deliver(w, to, now, frame)
						}
					}
				}
			}
		}
		next := int64(math.MaxInt64)
		for end, s := range w.ends {
			if w.alive(end) {
				next = min(next, s.Deadline())
			}
		}
		if next == math.MaxInt64 {
			next = now + 1
		}
		now = max(now, next)
	}
	if w.fault != "" {
		return w.fault
	}
	a := w.ends[a1]
	if w.born[a2] {
		a = w.ends[a2]
	}
	for _, end := range []int{b1, b2} {
		if w.alive(end) && a.peer != twinLife(end) && !w.told[end] {
			return twinNames[end] + " is not the peer and does not know it"
		}
		if w.alive(end) && a.peer == twinLife(end) && w.ends[end].peer != a.cfg.Incarnation {
			return twinNames[end] + " is the peer and does not know it"
		}
	}
	return ""
}

// TestEveryRunOfTwins explores the real rules. DMUTEX_LONG=1 explores the large
// budgets too.
func TestEveryRunOfTwins(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	type row struct {
		name string
		twinBudget
		states, cut int
	}
	rows := []row{
		{"both answer", twinBudget{met: true, challenges: 2}, 764, 288},
		{"both answer, and b1 sends", twinBudget{met: true, messages: [twinEnds]int{b1: 1}, challenges: 2}, 5029, 1810},
		{"paused", twinBudget{met: true, challenges: 2, paused: true}, 1328, 428},
		{"paused, and b1 sends", twinBudget{met: true, messages: [twinEnds]int{b1: 1}, challenges: 2, paused: true}, 14013, 3994},
		{"paused, and a1 sends", twinBudget{met: true, messages: [twinEnds]int{a1: 1}, challenges: 2, paused: true}, 19940, 5708},
		{"paused while A restarts", twinBudget{met: true, challenges: 1, paused: true, restart: true}, 1241, 313},
	}
	if os.Getenv("DMUTEX_LONG") == "1" {
		rows = append(rows, []row{
			{"both answer, and more", twinBudget{met: true, challenges: 3}, 26690, 6956},
			{"paused, and asks again", twinBudget{met: true, challenges: 3, paused: true}, 200136, 36784},
			{"from the first meeting", twinBudget{challenges: 2}, 160428, 63726},
			{"both answer and both send", twinBudget{met: true, messages: [twinEnds]int{a1: 1, b1: 1}, challenges: 2}, 172119, 56618},
			{"paused, from the first meeting", twinBudget{challenges: 2, paused: true}, 390958, 101538},
			{"paused while A restarts, from the first meeting", twinBudget{challenges: 1, paused: true, restart: true}, 1573530, 310732},
		}...)
	}
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			c.fair = 4
			e := twinExplorer{twinBudget: c.twinBudget}
			o := e.run()
			require.Empty(t, o.fault, strings.Join(o.trace, "\n"))
			require.Equal(t, [2]int{c.states, c.cut}, [2]int{o.states, o.cut})
		})
	}
}

// TestEveryRuleOfTwinsIsNeeded breaks the rules one by one.
func TestEveryRuleOfTwinsIsNeeded(t *testing.T) {
	for _, c := range []struct {
		name string
		twinBudget
		want string
	}{
		{"no grace", twinBudget{met: true, challenges: 2, noGrace: true}, "replaced a peer that still answers"},
		{"TAKEN without a proof of life", twinBudget{met: true, challenges: 2, mutant: mutation{stranger: refuseAtOnce}}, "b2 believes that another life of its node was alive"},
		{"former peers forgotten", twinBudget{met: true, messages: [twinEnds]int{b1: 1}, challenges: 3, paused: true, mutant: mutation{stranger: forgetFormer}}, "adopted b1 again"},
		{"HELLO never answered by one that has a peer", twinBudget{challenges: 2, paused: true, restart: true, fair: 1, mutant: mutation{stranger: knockInVain}}, "is not the peer and does not know it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := twinExplorer{twinBudget: c.twinBudget}
			o := e.run()
			t.Logf("%d states: %s\n%s", o.states, o.fault, strings.Join(o.trace, "\n"))
			require.Contains(t, o.fault, c.want)
		})
	}
}

// refuseAtOnce refuses every life that is not the peer.
func refuseAtOnce(s *Session, frame []byte) [][]byte {
	if ints, _ := split(frame); s.peer != 0 && sender(ints) != s.peer {
		s.refusal.to, s.refusal.nonce = sender(ints), 1
	}
	return [][]byte{frame}
}

func forgetFormer(s *Session, frame []byte) [][]byte {
	s.former = nil
	return [][]byte{frame}
}

// knockInVain answers no life but the peer.
func knockInVain(s *Session, frame []byte) [][]byte {
	ints, _ := split(frame)
	if from := sender(ints); kind(ints[0]) == hello && s.peer != 0 && from != s.peer {
		s.doubt(0, from, ints[4])
		return nil
	}
	return [][]byte{frame}
}

// A twinPair is a pair of which b's node has several lives. All that are not away hear
// what a sends.
type twinPair struct {
	*pair
	lives []*Session
	away  map[*Session]bool
}

// newTwins returns a pair that has met, and a second life of b that a has not met.
func newTwins(t testing.TB) (p *twinPair, b, twin *Session) {
	p = &twinPair{pair: meet(t), away: make(map[*Session]bool)}
	twin = newSession(t, 33)
	p.lives = []*Session{p.b, twin}
	return p, p.b, twin
}

// until lets time pass.
func (p *twinPair) until(end int64) {
	p.t.Helper()
	for ; p.now < end; p.now += millisecond {
		for _, f := range flush(p.a, p.now) {
			for _, s := range p.lives {
				if !p.away[s] {
					p.carry(s, f)
				}
			}
		}
		for _, s := range p.lives {
			if !p.away[s] {
				for _, f := range flush(s, p.now) {
					p.carry(p.a, f)
				}
			}
		}
	}
}

// TestSecondLifeIsRefused: a life that answers is not replaced, whichever of two
// is the faster, and the other learns of it within two round trips.
func TestSecondLifeIsRefused(t *testing.T) {
	for _, fast := range []bool{false, true} {
		p, b, twin := newTwins(t)
		if fast {
			slices.Reverse(p.lives)
		}
		p.until(40 * millisecond)
		require.Equal(t, []Event{Taken}, p.seen[twin])
		for range 100 {
			p.send(p.a, "to b")
			p.send(b, "from b")
			p.send(twin, "from its twin")
			p.until(p.now + 100*millisecond)
		}
		require.Equal(t, []Event{Met}, p.seen[p.a])
		require.Equal(t, []Event{Met}, p.seen[b])
		require.Len(t, p.got[b], 100)
		require.Len(t, p.got[p.a], 100)
		require.NotContains(t, p.seen[twin], Met)
		require.Empty(t, p.got[twin])
	}
}

// TestLateRefusal: a late copy of a refusal does not end a life that has become the
// peer since.
func TestLateRefusal(t *testing.T) {
	p, b, twin := newTwins(t)
	var late []byte
	for _, f := range flush(twin, p.now) {
		p.carry(p.a, f)
	}
	for late == nil {
		for _, f := range flush(p.a, p.now) {
			if ints, _ := split(f); kind(ints[0]) == taken {
				late = f
			} else {
				p.carry(b, f)
			}
		}
		for _, f := range flush(b, p.now) {
			p.carry(p.a, f)
		}
		p.now += millisecond
	}
	b.Close(p.now)
	p.until(p.now + 3000*millisecond)
	require.Equal(t, []Event{Met, Left, Restarted}, p.seen[p.a])
	require.Equal(t, []Event{Met}, p.seen[twin])
	p.carry(twin, late)
	p.until(p.now + 1000*millisecond)
	require.Equal(t, []Event{Met}, p.seen[twin])
}

// TestSilentPeerIsReplaced: not before its grace is over, and soon after it.
func TestSilentPeerIsReplaced(t *testing.T) {
	p, b, twin := newTwins(t)
	p.away[b] = true
	start := p.now
	p.until(start + defaultGrace)
	require.Equal(t, []Event{Met}, p.seen[p.a])
	p.until(start + defaultGrace + 25*millisecond)
	require.Equal(t, []Event{Met, Restarted}, p.seen[p.a])
	require.Equal(t, []Event{Met}, p.seen[twin])

	// The first life goes on, and says something.
	p.away[b] = false
	p.send(b, "from the past")
	p.until(p.now + 60*millisecond)
	require.Contains(t, p.seen[b], Taken)
	require.Equal(t, []Event{Met, Restarted}, p.seen[p.a])

	// Even if the second is gone then, the first does not come back.
	p.away[twin] = true
	p.seen[b] = nil
	p.until(p.now + 10_000*millisecond)
	require.Contains(t, p.seen[b], Taken)
	require.Equal(t, []Event{Met, Restarted}, p.seen[p.a])
	require.Empty(t, p.got[p.a])
}

// TestDoubtEnds: a peer that did not answer long ago has its grace again.
func TestDoubtEnds(t *testing.T) {
	p, b, twin := newTwins(t)
	p.away[b] = true
	p.until(100 * millisecond)
	p.away[twin] = true
	p.until(5000 * millisecond)
	require.Equal(t, int64(math.MaxInt64), p.a.Deadline())
	p.away[twin] = false
	doubted := p.a.Stats().Strays
	for p.a.Stats().Strays == doubted {
		p.until(p.now + millisecond)
	}
	p.until(p.now + defaultGrace - 2*millisecond)
	require.Equal(t, []Event{Met}, p.seen[p.a])
	p.until(p.now + 50*millisecond)
	require.Equal(t, []Event{Met, Restarted}, p.seen[p.a])
}

// TestPausedLifeMeetsAnother: a paused process learns that its number is taken
// from a life that it has never met.
func TestPausedLifeMeetsAnother(t *testing.T) {
	p, b, _ := newTwins(t)
	p.away[b] = true
	p.a = newSession(t, 12)
	p.until(1000 * millisecond)
	require.EqualValues(t, 33, p.a.Peer())
	p.away[b] = false
	p.send(b, "to the former a")
	p.until(p.now + 60*millisecond)
	require.Contains(t, p.seen[b], Taken)
	require.EqualValues(t, 33, p.a.Peer())
}

// TestOldAnswerIsNoProof: an answer that the peer gave before another life was heard
// does not end that life.
func TestOldAnswerIsNoProof(t *testing.T) {
	p := meet(t)
	old := join([]uint64{uint64(data), 22, 10, 1, 0}, []byte("\xc4\x01m")) // to a former life of ours
	p.carry(p.a, old)
	p.now += 100 * millisecond
	challenge := flush(p.a, p.now)
	require.Len(t, challenge, 1)
	p.carry(p.b, challenge[0])
	answer := flush(p.b, p.now)
	require.Len(t, answer, 1)
	p.b = newSession(t, 33) // the former is dead, and its answer still under way
	p.carry(p.a, flush(p.b, p.now)[0])
	p.carry(p.a, answer[0])
	for len(p.seen[p.a]) < 2 {
		p.wait()
	}
	require.Equal(t, []Event{Met, Restarted}, p.seen[p.a])
	require.Equal(t, []Event{Met}, p.seen[p.b])
}
