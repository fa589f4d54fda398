package membership

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
)

// A world is a group of members whose processes start, crash, leave and return,
// the network between them, and one lock. In a view that acts the lock is perfect: it is
// granted to one member at a time, beginning with what was reported. So what the
// exploration shows is about the views alone; the algorithms are explored across a
// view change elsewhere.
type world struct {
	cfg   *setup
	sites []site
	wires [][]wire // by sender and receiver
	locks []lock   // of the epochs that somebody may still use, ascending

	granted uint64 // the highest fence granted
	highest uint32 // the highest epoch of a view; the clock is always beyond it
	lives   uint64 // that were begun
	crashes int
	exits   int
	evicts  int
}

// A site is a member and its process, if one runs.
type site struct {
	m      *Machine // nil if no process runs
	epoch  uint32   // that was reported in
	fence  uint64   // by which it holds, 0 if it does not
	met    []uint64 // the lives of the peers that its sessions have adopted
	leaves bool
	dead   bool // it has crashed, and nobody has been told
}

// A wire is the messages from one life to another that are on their way.
type wire struct {
	from, to uint64 // lives
	queue    []Message
}

// A lock is the lock of one epoch.
type lock struct {
	view   View
	holder dmutex.NodeID
}

// A setup bounds an exploration.
type setup struct {
	n       int
	rounds  uint32 // no member promises a higher one
	crashes int
	exits   int
	evicts  int
	clocks  bool                       // lives rise by themselves; else each is told that it must be higher
	away    int                        // members that are not there at the beginning, from the highest down
	founded bool                       // begin with a view of those that are there
	hear    func(*Machine, *Message)   // breaks a rule at the receiver
	after   func(*Machine)             // breaks a rule after each input
	holds   func(s *site) []Hold       // breaks a rule of the driver
	acts    func(w *world, i int) bool // likewise
}

func newWorld(cfg *setup) *world {
	w := &world{cfg: cfg, sites: make([]site, cfg.n), wires: make([][]wire, cfg.n)}
	for i := range w.wires {
		w.wires[i] = make([]wire, cfg.n)
	}
	for i := range cfg.n - cfg.away {
		w.start(i)
	}
	return w
}

func (w *world) members() (all []dmutex.NodeID) {
	for i := range w.cfg.n {
		all = append(all, dmutex.NodeID(i+1))
	}
	return all
}

// start begins a life.
func (w *world) start(i int) {
	w.lives++
	life := w.lives
	if !w.cfg.clocks {
		life = 1<<20 - w.lives // it must rename itself if there was another
	}
	w.begin(i, life)
}

func (w *world) begin(i int, life uint64) {
	cfg := Config{Self: dmutex.NodeID(i + 1), Members: w.members(), Life: life}
	if w.cfg.clocks && w.highest > 0 {
		cfg.Clock = uint64(w.highest+1) << 32
	}
	m, err := New(cfg)
	if err != nil {
		panic(err)
	}
	w.sites[i] = site{m: m, met: make([]uint64, w.cfg.n)}
	for j := range w.wires[i] {
		w.wires[i][j] = wire{} // what was under way may still arrive: it was moved
		w.wires[j][i].queue = nil
	}
	w.input(i, m.Tick(0))
}

func (w *world) clone() *world {
	c := *w
	c.sites = slices.Clone(w.sites)
	for i := range c.sites {
		s := &c.sites[i]
		if s.m != nil {
			s.m = s.m.Clone()
		}
		s.met = slices.Clone(s.met)
	}
	c.wires = make([][]wire, len(w.wires))
	for i := range w.wires {
		c.wires[i] = slices.Clone(w.wires[i])
		for j := range c.wires[i] {
			c.wires[i][j].queue = slices.Clone(w.wires[i][j].queue)
		}
	}
	c.locks = slices.Clone(w.locks)
	return &c
}

// An action is what may happen next.
type action struct {
	what string
	i, j int
}

func (a action) String() string {
	switch a.what {
	case "deliver":
		return fmt.Sprintf("deliver %d->%d", a.i+1, a.j+1)
	case "meet", "evict":
		return fmt.Sprintf("%s %d %d", a.what, a.i+1, a.j+1)
	}
	return fmt.Sprintf("%s %d", a.what, a.i+1)
}

// actions returns all that may happen.
func (w *world) actions() (all []action) {
	add := func(what string, i, j int) { all = append(all, action{what, i, j}) }
	for i := range w.sites {
		s := &w.sites[i]
		if s.m == nil {
			add("start", i, 0)
			continue
		}
		phase := s.m.Phase()
		if phase == Older {
			add("rename", i, 0)
			continue
		}
		if phase == Stopped {
			add("end", i, 0)
			continue
		}
		for j := range w.sites {
			t := &w.sites[j]
			if i == j || t.m == nil {
				if i != j && len(w.wires[j][i].queue) > 0 && w.arrives(j, i) {
					add("deliver", j, i)
				}
				continue
			}
			if s.met[j] != t.m.life {
				add("meet", i, j)
			}
			if len(w.wires[j][i].queue) > 0 && w.arrives(j, i) {
				add("deliver", j, i)
			}
		}
		if at := s.m.Deadline(); at != never {
			add("tick", i, 0)
		}
		if phase == Acting && !s.leaves {
			if l := w.lock(s.m.view); l != nil {
				switch {
				case l.holder == dmutex.None && s.fence == 0:
					add("acquire", i, 0)
				}
			}
		}
		if phase == Acting && s.fence == 0 {
			if l := w.lock(s.m.view); l != nil && l.holder == dmutex.NodeID(i+1) {
				add("settle", i, 0)
			}
		}
		if s.fence != 0 {
			add("release", i, 0)
		}
		if w.crashes < w.cfg.crashes {
			add("crash", i, 0)
		}
		if w.exits < w.cfg.exits && s.fence == 0 && !s.leaves {
			add("leave", i, 0)
		}
		if w.evicts < w.cfg.evicts && s.m.Phase() == Acting && !s.leaves {
			for j := range w.sites {
				if i != j && w.sites[j].m == nil {
					add("evict", i, j)
				}
			}
		}
	}
	return all
}

// arrives reports whether the wire is between lives that have adopted each other, as
// far as the receiver knows: frames of a dead life arrive until its successor
// is met.
func (w *world) arrives(from, to int) bool {
	x := &w.wires[from][to]
	return w.sites[to].m != nil && x.to == w.sites[to].m.life && w.sites[to].met[from] == x.from
}

func (w *world) lock(v View) *lock {
	for i := range w.locks {
		if w.locks[i].view.Epoch == v.Epoch && slices.Equal(w.locks[i].view.Members, v.Members) {
			return &w.locks[i]
		}
	}
	return nil
}

// do lets something happen. It returns what is wrong then, "" if nothing is.
func (w *world) do(a action) (wrong string) {
	s := &w.sites[a.i]
	switch a.what {
	case "start":
		w.start(a.i)
	case "rename":
		w.begin(a.i, s.m.Later()+1)
	case "end", "crash":
		if a.what == "crash" {
			w.crashes++
		}
		w.stop(a.i)
	case "meet":
		life := w.sites[a.j].m.life
		s.met[a.j] = life
		w.wires[a.i][a.j] = wire{from: s.m.life, to: life}
		if x := &w.wires[a.j][a.i]; x.from != life {
			x.queue = nil
		}
		wrong = w.input(a.i, s.m.Met(0, dmutex.NodeID(a.j+1), life))
	case "deliver":
		x := &w.wires[a.i][a.j]
		msg := x.queue[0]
		x.queue = slices.Clone(x.queue[1:])
		to := w.sites[a.j].m
		if w.cfg.hear != nil {
			w.cfg.hear(to, &msg)
		}
		out, err := to.Handle(0, msg)
		if err != nil {
			return err.Error()
		}
		wrong = w.input(a.j, out)
	case "tick":
		wrong = w.input(a.i, s.m.Tick(s.m.Deadline()))
	case "acquire":
		l := w.lock(s.m.view)
		l.holder = dmutex.NodeID(a.i + 1)
		s.fence = uint64(l.view.Epoch)<<32 | 1 // within an epoch the algorithms see to the order
		if s.fence < w.granted && w.cfg.clocks {
			return fmt.Sprintf("the fence of %d is not higher than the last", a.i+1)
		}
		w.granted = max(w.granted, s.fence)
	case "release":
		s.fence = 0
		if l := w.lock(s.m.view); l != nil && s.m.Phase() == Acting && l.holder == dmutex.NodeID(a.i+1) {
			l.holder = dmutex.None
		}
	case "settle": // it was released between the report and the view's first act
		w.lock(s.m.view).holder = dmutex.None
	case "leave":
		w.exits++
		s.leaves = true
		wrong = w.input(a.i, s.m.Leave(0))
	case "evict":
		w.evicts++
		out, err := s.m.Evict(0, dmutex.NodeID(a.j+1))
		if err != nil {
			return err.Error()
		}
		wrong = w.input(a.i, out)
	}
	if wrong != "" {
		return wrong
	}
	w.forget()
	return w.check()
}

// stop ends a process. What it has sent may still arrive.
func (w *world) stop(i int) {
	w.sites[i] = site{}
	for j := range w.wires {
		w.wires[j][i].queue = nil
	}
}

// input is the driver: it passes messages on and does what the machine wants.
func (w *world) input(i int, out []Message) (wrong string) {
	s := &w.sites[i]
	for {
		if w.cfg.after != nil {
			w.cfg.after(s.m)
		}
		for _, msg := range out {
			j := int(msg.To) - 1
			if x := &w.wires[i][j]; s.met[j] != 0 && x.to == s.met[j] && x.from == s.m.life {
				x.queue = append(slices.Clone(x.queue), msg)
			}
		}
		v := s.m.View()
		if v.Epoch <= s.epoch {
			break
		}
		s.epoch = v.Epoch
		w.highest = max(w.highest, v.Epoch)
		for j := range w.sites {
			if m := w.sites[j].m; m != nil && m.view.Epoch == v.Epoch && !slices.Equal(m.view.Members, v.Members) {
				return fmt.Sprintf("two views of epoch %d: %v and %v", v.Epoch, m.view, v)
			}
		}
		var holds []Hold
		if s.fence != 0 {
			holds = []Hold{{"x", s.fence}}
		}
		if w.cfg.holds != nil {
			holds = w.cfg.holds(s)
		}
		out = s.m.Report(0, holds)
	}
	switch s.m.Phase() {
	case Acting:
		if w.lock(s.m.view) == nil {
			l := lock{view: s.m.view}
			for _, h := range s.m.Holders() {
				l.holder = h.Node
			}
			w.locks = append(w.locks, l)
			slices.SortFunc(w.locks, func(a, b lock) int { return int(a.view.Epoch) - int(b.view.Epoch) })
		}
	case Left:
		w.stop(i)
	case Stopped:
		s.fence = 0
	}
	return ""
}

// forget drops what no living process can use any more.
func (w *world) forget() {
	low := ^uint32(0)
	for i := range w.sites {
		if m := w.sites[i].m; m != nil {
			low = min(low, m.view.Epoch)
		}
	}
	w.locks = slices.DeleteFunc(w.locks, func(l lock) bool { return l.view.Epoch < low })
}

// check says what is wrong with the world.
func (w *world) check() string {
	var inside []dmutex.NodeID
	for i := range w.sites {
		if w.sites[i].m != nil && w.sites[i].fence != 0 {
			inside = append(inside, dmutex.NodeID(i+1))
		}
	}
	if len(inside) > 1 {
		return fmt.Sprintf("two holders: %v", inside)
	}
	return ""
}

// stuck says what is wrong with a world in which nothing will happen by itself.
func (w *world) stuck() string {
	for i := range w.sites {
		if w.sites[i].m == nil {
			return "" // it may be waited for
		}
	}
	var epoch uint32
	for i := range w.sites {
		m := w.sites[i].m
		switch {
		case m.leaving:
			return fmt.Sprintf("%d cannot leave", i+1)
		case m.Phase() != Acting:
			return fmt.Sprintf("%d waits for ever, %v", i+1, m.Phase())
		case epoch != 0 && m.view.Epoch != epoch:
			return fmt.Sprintf("%d stays behind", i+1)
		}
		epoch = m.view.Epoch
	}
	return ""
}

// beyond reports whether the run has left the bounds.
func (w *world) beyond() bool {
	for i := range w.sites {
		if m := w.sites[i].m; m != nil && m.promised > w.cfg.rounds {
			return true
		}
	}
	return false
}

func (w *world) text(b []byte) []byte {
	for i := range w.sites {
		s := &w.sites[i]
		if s.m == nil {
			b = append(b, "gone\n"...)
			continue
		}
		b, _ = s.m.AppendText(b)
		b = appendNumber(b, " holds ", s.fence)
		b = fmt.Append(b, s.met, s.leaves, '\n')
	}
	for i := range w.wires {
		for j := range w.wires[i] {
			x := &w.wires[i][j]
			if len(x.queue) == 0 {
				continue
			}
			b = fmt.Append(b, i, j, x.from, x.to)
			for _, msg := range x.queue {
				b = append(append(b, msg.String()...), ';')
			}
		}
	}
	for _, l := range w.locks {
		b = fmt.Append(append(b, l.view.String()...), l.holder)
	}
	b = fmt.Append(b, w.granted, w.highest, w.crashes, w.exits, w.evicts, w.lives)
	return b
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

type key [16]byte

func (w *world) key(scratch *[]byte) (k key) {
	*scratch = w.text((*scratch)[:0])
	for i, seed := range seeds {
		binary.LittleEndian.PutUint64(k[8*i:], maphash.Bytes(seed, *scratch))
	}
	return k
}

// A result is what an exploration has come to.
type result struct {
	states int
	cut    bool
	wrong  string
	run    []action
}

// explore visits every state within the bounds, breadth first.
func explore(cfg *setup, most int) (r result) {
	type from struct {
		parent int32
		action action
	}
	first := newWorld(cfg)
	var scratch []byte
	visited := map[key]struct{}{first.key(&scratch): {}}
	history := []from{{-1, action{}}}
	type open struct {
		w  *world
		id int32
	}
	frontier := []open{{first, 0}}
	fail := func(id int32, last *action, wrong string) result {
		var run []action
		if last != nil {
			run = append(run, *last)
		}
		for ; id > 0; id = history[id].parent {
			run = append(run, history[id].action)
		}
		slices.Reverse(run)
		return result{states: len(visited), wrong: wrong, run: run}
	}
	for len(frontier) > 0 {
		var next []open
		for k := range frontier {
			o := frontier[k]
			frontier[k] = open{}
			moves := false
			for _, a := range o.w.actions() {
				if a.what == "meet" || a.what == "deliver" || a.what == "tick" || a.what == "rename" || a.what == "end" || a.what == "settle" {
					moves = true
				}
				c := o.w.clone()
				if wrong := c.do(a); wrong != "" {
					return fail(o.id, &a, wrong)
				}
				if c.beyond() {
					continue
				}
				key := c.key(&scratch)
				if _, known := visited[key]; known {
					continue
				}
				visited[key] = struct{}{}
				history = append(history, from{o.id, a})
				next = append(next, open{c, int32(len(history) - 1)})
			}
			if !moves {
				if wrong := o.w.stuck(); wrong != "" {
					return fail(o.id, nil, wrong)
				}
			}
			if most > 0 && len(visited) >= most {
				return result{states: len(visited), cut: true}
			}
		}
		frontier = next
	}
	return result{states: len(visited)}
}

// tell replays a run and writes it down.
func tell(cfg *setup, run []action) string {
	var b strings.Builder
	w := newWorld(cfg)
	for _, a := range run {
		fmt.Fprintln(&b, a)
		if a.what == "deliver" {
			fmt.Fprintf(&b, "  %v\n", w.wires[a.i][a.j].queue[0])
		}
		wrong := w.do(a)
		for i := range w.sites {
			if m := w.sites[i].m; m != nil {
				text, _ := m.AppendText(nil)
				fmt.Fprintf(&b, "    %s holds %d\n", text, w.sites[i].fence)
			}
		}
		if wrong != "" {
			fmt.Fprintln(&b, "wrong:", wrong)
		}
	}
	return b.String()
}
