package clientsession

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/internal/search"
)

// A world is a state of some clients, the member that serves them, and one lock. Time passes in
// units, for all at once. Clients and members may look at the clock late. Messages arrive at
// once. Over a slow connection they arrive in order, each at any time.
//
// When the member has crashed or closed, another takes its place. After a crash the lock is not
// granted before the end of the dead member's lease.
type world struct {
	*setup
	now     int64
	clients []place
	left    faults
	asks    int // left

	leaseFrom int64 // of the member
	lapsed    bool  // it has noticed that its lease has ended
	closing   bool
	sessions  []session
	holder    claim   // zero if the lock is free
	waiting   []claim // first come, first served
	freeAt    int64   // after a crash
	fence     uint64
}

// A place is where one client at a time runs.
type place struct {
	m        *Client
	sessions int // so far
	linked   bool
	slow     bool
	up, down []Message // on their way to the member, and to the client
	late     []Message // hellos on their way over connections that are lost
	held     uint64    // the request by which the driver holds the lock
	told     told
}

type session struct {
	name string
	m    *Member
}

// A claim is a request of a session.
type claim struct {
	session string
	number  uint64
}

// A setup says what is done, and what may go wrong.
type setup struct {
	length, wait int64 // S and D, in units; 0 is the D of the rule
	lease        int64 // of the member, in units; 0 if it has no end
	sessions     int   // of each client, at most
	asks         int   // at most
	hasty        bool  // a crash of the member ends the holds of its clients at once
	faults       faults

	alter func(w *world, do string, i int, input func()) // breaks a rule
}

// faults are how often each may happen.
type faults struct{ slow, breaks, crashes, deaths, closes, cancels int }

func (s setup) name() string {
	return fmt.Sprintf("session %d, wait %d, lease %d, sessions %d, asks %d, %+v", s.length, s.wait, s.lease, s.sessions, s.asks, s.faults)
}

// unit is the unit of time, in nanoseconds.
const unit = 1_000_000_000

type event = search.Event[*world]

func newWorld(s setup) *world {
	w := &world{setup: &s, left: s.faults, asks: s.asks}
	for range 2 {
		w.clients = append(w.clients, place{m: New("n")})
	}
	return w
}

func (w *world) Clone(*world) *world {
	c := *w
	c.clients, c.sessions, c.waiting = slices.Clone(w.clients), slices.Clone(w.sessions), slices.Clone(w.waiting)
	for i := range c.clients {
		p := &c.clients[i]
		m := *p.m
		m.requests, m.out, m.news = slices.Clone(m.requests), nil, nil
		p.m, p.up, p.down, p.late = &m, slices.Clone(p.up), slices.Clone(p.down), slices.Clone(p.late)
	}
	for i := range c.sessions {
		m := *c.sessions[i].m
		m.requests, m.out, m.news = slices.Clone(m.requests), nil, nil
		c.sessions[i].m = &m
	}
	return &c
}

// AppendState writes times relative to now.
func (w *world) AppendState(b []byte) []byte {
	to := func(t int64) int64 { return max(t-w.now, 0) }
	b = fmt.Appendf(b, "%d %d %v %v %v %d %d|", w.asks, w.left, w.lapsed, w.closing, w.holder, min(w.now-w.leaseFrom, w.lease*unit), w.fence)
	if w.holder == (claim{}) {
		b = fmt.Appendf(b, "%d %v", to(w.freeAt), w.waiting)
	} else {
		b = fmt.Appendf(b, "%v", w.waiting)
	}
	for _, p := range w.clients {
		b = fmt.Appendf(b, "\n%d %v%v %d ", p.sessions, p.linked, p.slow, p.held)
		b = appendClient(b, p.m, w.now)
		for _, q := range [][]Message{p.up, p.down, p.late} {
			for _, msg := range q {
				if s := w.session(msg.Session); s != nil && msg.Kind == Hello {
					msg.Number -= s.m.link // only which connection is newer matters
				}
				b = fmt.Appendf(b, "%d %d %s %v %d %d,", msg.Kind, msg.Number, msg.Session, msg.Wants, msg.Fence, msg.For)
			}
			b = append(b, '/')
		}
	}
	for _, s := range w.sessions {
		b = fmt.Appendf(b, "\n%s %d %v %d", s.name, to(s.m.overAt), s.m.leaving, len(s.m.requests))
		b = appendRequests(b, s.m.requests, w.now)
	}
	return b
}

// holds reports whether the driver of a client has a valid hold of the lock.
func (w *world) holds(i int) bool {
	return w.clients[i].held != 0 && w.now < w.clients[i].m.term.Until()
}

// term is for how long the member's lease still runs.
func (w *world) term() int64 {
	switch {
	case w.lapsed:
		return 0
	case w.lease == 0:
		return math.MaxInt64
	}
	return w.leaseFrom + w.lease*unit - w.now
}

func (w *world) Steps(steps []event) []event {
	add := func(do func(w *world), format string, args ...any) {
		steps = append(steps, search.NewEvent(func(w *world) error {
			do(w)
			w.flow()
			return w.wrong()
		}, format, args...))
	}
	add(func(w *world) { w.now += unit }, "time passes")
	for i, p := range w.clients {
		who := string(rune('a' + i))
		act := func(do string, input func(w *world)) {
			add(func(w *world) { w.client(do, i, func() { input(w) }) }, "%s %s", who, do)
		}
		m := p.m
		if !p.linked && m.Wanting() {
			act("connects", func(w *world) { w.connect(i) })
			if w.left.slow > 0 {
				act("connects slowly", func(w *world) { w.left.slow--; w.clients[i].slow = true; w.connect(i) })
			}
		}
		if len(p.up) > 0 {
			add(func(w *world) { w.deliver(i) }, "the member takes %s of %s", words[p.up[0].Kind], who)
		}
		if len(p.down) > 0 {
			add(func(w *world) { w.take(i) }, "%s takes %s", who, words[p.down[0].Kind])
		}
		if len(p.late) > 0 {
			add(func(w *world) { w.greet(i) }, "the member takes a late hello of %s", who)
		}
		if w.now >= m.Deadline() {
			act("looks at the clock", func(w *world) { w.clients[i].m.Tick(w.now) })
		}
		switch {
		case len(m.requests) == 0 && w.asks > 0:
			act("asks", func(w *world) { w.asks--; w.clients[i].m.Ask("l", false, false) })
		case p.held != 0:
			act("releases", func(w *world) { w.release(i) })
		case len(m.requests) > 0 && w.left.cancels > 0:
			act("cancels", func(w *world) { w.left.cancels--; w.release(i) })
		}
		if p.linked && w.left.breaks > 0 {
			add(func(w *world) { w.left.breaks--; w.unlink(i) }, "the connection of %s breaks", who)
		}
		if w.left.crashes > 0 && m.Wanting() {
			add(func(w *world) { w.left.crashes--; w.die(i) }, "%s crashes", who)
		}
	}
	for _, s := range w.sessions {
		if w.now >= s.m.Deadline() {
			add(func(w *world) { w.member("sees the session run out", w.session(s.name), (*Member).Tick) }, "the member sees %s run out", s.name)
		}
	}
	if len(w.waiting) > 0 && w.holder == (claim{}) && w.now >= w.freeAt && w.term() > 0 {
		add((*world).grant, "the member is granted the lock")
	}
	if w.lapsed || w.lease > 0 && w.term() > 0 && w.term() < w.lease*unit {
		add(func(w *world) { w.leaseFrom, w.lapsed = w.now, false }, "the member renews its lease")
	}
	if !w.lapsed && w.term() <= 0 {
		add((*world).lapse, "the member's lease ends")
	}
	if w.left.deaths > 0 {
		add(func(w *world) {
			w.left.deaths--
			free := w.freeAt
			if w.holder != (claim{}) && !w.hasty {
				free = w.leaseFrom + w.lease*unit
			}
			w.succeed()
			w.freeAt = max(free, w.freeAt)
		}, "the member crashes")
	}
	if w.left.closes > 0 && !w.closing {
		add(func(w *world) {
			w.left.closes--
			w.closing = true
			for _, s := range slices.Clone(w.sessions) {
				w.member("closes", w.session(s.name), func(m *Member, _ int64) { m.Close() })
			}
		}, "the member closes")
	}
	if w.closing && w.holder == (claim{}) {
		add((*world).succeed, "the member leaves")
	}
	return steps
}

var words = [...]string{Hello: "a hello", Beat: "a beat", Ask: "a request", Drop: "a release", Bye: "a farewell", Moved: "the word that a claim has moved", Confirm: "a confirmation", Granted: "a grant", Refused: "a refusal", Leave: "the word to leave", Over: "the end"}

// fair reports whether a step happens by itself sooner or later.
func fair(_ *world, step event) bool {
	for _, fault := range []string{"asks", "cancels", "breaks", "slowly", "crashes", "member closes"} {
		if strings.HasSuffix(step.String(), fault) {
			return false
		}
	}
	return true
}

// client gives a client an input, and carries out its output.
func (w *world) client(do string, i int, input func()) {
	if w.alter != nil {
		w.alter(w, do, i, input)
	} else {
		input()
	}
	p := &w.clients[i]
	out, news := p.m.Output()
	p.told.hear(p.m, news)
	for _, msg := range out {
		if msg.Kind == Bye { // the connection is closed behind it
			if s := w.session(w.owner(i)); s != nil {
				w.member("ends", s, func(m *Member, now int64) { m.Handle(now, w.term(), &msg) })
			}
		} else if p.linked {
			p.up = append(p.up, msg)
		}
	}
	for _, e := range news {
		switch {
		case e.Kind == Granted:
			p.held = e.Number
		case p.held == e.Number:
			p.held = 0
		}
	}
	if p.linked && !p.m.Connected() {
		w.unlink(i)
	}
}

// flow lets messages arrive where the connection is not slow.
func (w *world) flow() {
	for i := range w.clients {
		for p := &w.clients[i]; !p.slow && len(p.up)+len(p.down) > 0; {
			if len(p.up) > 0 {
				w.deliver(i)
			} else {
				w.take(i)
			}
		}
	}
}

// take brings a message of the member to a client.
func (w *world) take(i int) {
	p := &w.clients[i]
	msg := p.down[0]
	p.down = p.down[1:]
	w.client("takes "+words[msg.Kind], i, func() { p.m.Handle(w.now, &msg) })
}

// owner returns the last session of a client.
func (w *world) owner(i int) string {
	return string(rune('a'+i)) + fmt.Sprint(w.clients[i].sessions)
}

func (w *world) connect(i int) {
	p := &w.clients[i]
	if p.linked = true; p.m.Session() == "" {
		p.sessions++
	}
	p.m.Connect(w.now, w.owner(i), false)
}

func (w *world) release(i int) {
	p := &w.clients[i]
	number := p.held
	if p.held = 0; number == 0 {
		number = p.m.requests[0].number
	}
	p.m.Drop(w.now, number)
}

func (w *world) unlink(i int) {
	p := &w.clients[i]
	if len(p.up) > 0 && p.up[0].Kind == Hello {
		p.late = append(p.late, p.up[0])
	}
	p.linked, p.slow, p.up, p.down = false, false, nil, nil
	p.m.Disconnect()
	_, news := p.m.Output()
	p.told.hear(p.m, news)
}

// die puts another client in the place of one.
func (w *world) die(i int) {
	w.unlink(i)
	w.clients[i].m, w.clients[i].held, w.clients[i].told = New("n"), 0, told{}
}

func (w *world) session(name string) *session {
	for i := range w.sessions {
		if w.sessions[i].name == name {
			return &w.sessions[i]
		}
	}
	return nil
}

// deliver brings a message of a client to the member.
func (w *world) deliver(i int) {
	p := &w.clients[i]
	msg := p.up[0]
	p.up = p.up[1:]
	if s := w.find(w.owner(i), &msg); s != nil {
		w.member("takes "+words[msg.Kind], s, func(m *Member, now int64) {
			if msg.Kind != Hello || m.Newer(msg.Number) {
				m.Handle(now, w.term(), &msg)
			}
		})
	} else if msg.Kind == Hello {
		p.down = append(p.down, Message{Kind: Over, Code: Unknown})
	}
}

// greet brings the member a hello of a client over a connection that is lost. The member's answer
// is lost, too.
func (w *world) greet(i int) {
	p := &w.clients[i]
	msg := p.late[0]
	p.late = p.late[1:]
	if s := w.find(msg.Session, &msg); s != nil {
		w.member("takes a late hello", s, func(m *Member, now int64) {
			if m.Newer(msg.Number) {
				m.Handle(now, w.term(), &msg)
				m.out = nil
			}
		})
	}
}

// find returns the session of a message. A hello may begin it.
func (w *world) find(name string, msg *Message) *session {
	s := w.session(name)
	if s == nil && msg.Kind == Hello && msg.Fresh {
		m := NewMember(w.now, w.length*unit)
		if w.wait > 0 {
			m.drain = w.wait * unit
			m.overAt = w.now + w.wait*unit
		}
		if w.closing {
			m.Close()
			m.Output()
		}
		w.sessions = append(w.sessions, session{name, m})
		slices.SortFunc(w.sessions, func(a, b session) int { return strings.Compare(a.name, b.name) })
		s = w.session(name)
	}
	return s
}

// member gives the member's side of a session an input, and carries out its output.
func (w *world) member(do string, s *session, input func(m *Member, now int64)) {
	name, m := s.name, s.m
	i := int(name[0] - 'a')
	if w.alter != nil {
		w.alter(w, do, i, func() { input(m, w.now) })
	} else {
		input(m, w.now)
	}
	out, orders := m.Output()
	if p := &w.clients[i]; p.linked && name == w.owner(i) {
		p.down = append(p.down, out...)
	}
	if m.Over() {
		w.sessions = slices.DeleteFunc(w.sessions, func(s session) bool { return s.name == name })
	}
	for _, o := range orders {
		c := claim{name, o.Number}
		switch {
		case o.Kind == Ask:
			w.waiting = append(w.waiting, c)
		case w.holder == c:
			w.holder = claim{}
		default:
			w.waiting = slices.DeleteFunc(w.waiting, func(other claim) bool { return other == c })
		}
	}
}

func (w *world) grant() {
	w.fence++
	w.holder, w.waiting = w.waiting[0], w.waiting[1:]
	c := w.holder
	w.member("is granted", w.session(c.session), func(m *Member, _ int64) { m.Granted(c.number, w.fence, 1) })
}

// lapse ends the member's lease: all sessions end, and the lock is free.
func (w *world) lapse() {
	w.lapsed = true
	for _, s := range slices.Clone(w.sessions) {
		w.member("has lost its locks", w.session(s.name), func(m *Member, _ int64) { m.End(Lapsed, "") })
	}
	w.holder = claim{}
}

// succeed puts another member in the place of one that is gone.
func (w *world) succeed() {
	w.sessions, w.waiting, w.holder = nil, nil, claim{}
	w.leaseFrom, w.lapsed, w.closing = w.now, false, false
	for i := range w.clients {
		w.unlink(i)
		w.clients[i].late = nil
	}
}

// The ways to go wrong.
var (
	errTwo   = errors.New("two clients hold the lock")
	errTold  = errors.New("what a client tells of its sessions is not true")
	errStuck = errors.New("a client cannot get the lock, or it cannot become free")
)

// wrong checks that at most one client has a valid hold, and that they tell of their sessions.
func (w *world) wrong() error {
	for i := range w.clients {
		if w.clients[i].sessions > w.setup.sessions {
			return search.ErrOutside
		}
		if w.clients[i].told.wrong {
			return search.Wrong(errTold, "%s", w.owner(i))
		}
		for k := range i {
			if w.holds(i) && w.holds(k) {
				return search.Wrong(errTwo, "%s and %s", w.owner(k), w.owner(i))
			}
		}
	}
	return nil
}

func (w *world) Do(step event) error { return step.Do(w) }

func (w *world) good() bool {
	return w.holder == (claim{}) && !w.closing && !slices.ContainsFunc(w.clients, func(p place) bool { return len(p.m.requests) > 0 })
}

func (w *world) Tell(b []byte, step event, after *world) []byte {
	b = fmt.Appendf(b, "%v\n", step)
	for i := range w.clients {
		is := func(w *world) string {
			switch {
			case w.holds(i):
				return "holds the lock"
			case w.clients[i].held != 0:
				return "holds the lock no longer"
			}
			return "does not hold the lock"
		}
		if is(w) != is(after) {
			b = fmt.Appendf(b, "    %c %s\n", 'a'+i, is(after))
		}
	}
	if w.holder != after.holder {
		if after.holder == (claim{}) {
			b = fmt.Appendf(b, "    the member gives the lock back\n")
		} else {
			b = fmt.Appendf(b, "    the member has the lock for %s\n", after.holder.session)
		}
	}
	return b
}

// explore visits every state within the bounds.
func explore(s setup, most int) (search.Report, error) {
	return search.Search[*world, event]{
		First:  newWorld(s),
		Fair:   fair,
		Good:   (*world).good,
		Stuck:  func(*world) error { return search.Wrong(errStuck, "from here on") },
		Limits: search.Limits{MaxStates: most},
	}.Run()
}
