package dmutextest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/search"
	"github.com/dmutex/dmutex/trace"
)

// A SimConfig says which group [Simulate] runs, and under which load. Its unit
// of time is T, the mean delay of a message.
type SimConfig struct {
	Algorithm dmutex.Algorithm
	Members   []dmutex.NodeID // see Nodes
	Delay     Delay           // of the messages
	Entries   int             // into the critical section, by all nodes together; at least 1
	Seed      uint64

	// Think is the mean time from a node's release to its next request. The
	// times are exponentially distributed. This and the other times are at most 1e6.
	//
	// 0 is the saturated load: every node requests again at once. math.Inf(1) is
	// the rare load, one request at a time: a node drawn at random makes the next
	// request when no message of the last one is in flight. (With ticks there may
	// always be messages; then the request comes a random time later, up to T for each node.)
	Think float64

	// Hold is the time from an entry to the release. If it is T or more, and the
	// delay constant, a request made at the moment of an entry reaches all nodes
	// before the release.
	Hold float64

	// Shares is the fraction of the requests that are to share the lock, drawn at random. Above 0 the
	// Algorithm must make machines of type [dmutex.Sharer].
	Shares float64

	// Tick is the time from one tick of a machine to its next, for machines
	// of type [dmutex.Ticker]; 0 means no ticks. Nodes do not tick in step.
	Tick float64

	// Trace, if not nil, is called for every event of a node, in the order of
	// time. The lock is "x", and T is a second. The event is valid only during
	// the call.
	Trace func(node dmutex.NodeID, e *trace.Event)
}

// A Delay is the distribution of the delays of messages. Their mean is T. Messages
// from one node to another always keep their order.
type Delay uint8

// The delays.
const (
	Constant    Delay = iota // always T
	Uniform                  // from 0 to 2T
	Exponential              // mostly less than T, and sometimes far more
)

// A SimReport is what [Simulate] has measured. Times are in T.
type SimReport struct {
	Entries  int
	Messages int   // sent in all; divided by Entries, the messages of an entry
	ByNode   []int // the entries of each node, by place in Members

	// Cost is the number of messages of an entry, from its request until all of
	// them have arrived. It is known only if there is one entry at a time: if the
	// load is rare and there are no ticks.
	Cost Spread

	Wait Spread // from a request to the entry
	Next Spread // from a release to the next entry, if that node was waiting already

	Time       float64 // from the beginning to the last release
	Throughput float64 // entries per T
	Fairness   float64 // of ByNode, by Jain's index: 1 if all are equal, 1/N if only one entered
}

// A Spread is the mean and the range of several measurements.
type Spread struct {
	Count    int     `json:"count"`
	Mean     float64 `json:"mean"` // this and the others are 0 if there were none
	Least    float64 `json:"least"`
	Greatest float64 `json:"greatest"`
}

func (s *Spread) add(v float64) {
	if s.Count == 0 {
		s.Least, s.Greatest = v, v
	}
	s.Count++
	s.Mean += (v - s.Mean) / float64(s.Count)
	s.Least, s.Greatest = min(s.Least, v), max(s.Greatest, v)
}

// Simulate runs a group of any size in virtual time, and measures. No request is
// canceled, no message is lost, and nodes compute in no time. The same SimConfig
// makes the same run.
//
// Simulate checks that no two nodes are in the critical section together unless both share, that
// fences of those that conflict rise and that every request is granted. Its error names what went wrong,
// such as ErrMutualExclusion, and the seed. It refuses a SimConfig that makes no
// sense with [dmutex.ErrMisuse].
func Simulate(c SimConfig) (SimReport, error) {
	s, err := newSimulation(c)
	if err != nil {
		return SimReport{}, err
	}
	r := &s.report
	if v, ok := errors.AsType[*Violation](s.run()); ok {
		return *r, fmt.Errorf("%w: %s (seed %d, after %d entries, at %.6g T)", v.Kind, v.Why, c.Seed, r.Entries, inT(s.now))
	}
	r.Time = inT(s.left)
	if r.Time > 0 {
		r.Throughput = float64(r.Entries) / r.Time
	}
	squares := 0.0
	for _, k := range r.ByNode {
		squares += float64(k) * float64(k)
	}
	r.Fairness = float64(r.Entries) * float64(r.Entries) / (float64(len(r.ByNode)) * squares)
	return *r, nil
}

// T in the unit of the simulation's clock.
const unit = 1 << 16

func inT(t int64) float64 { return float64(t) / unit }

// A simulation is a run as it goes on.
type simulation struct {
	cfg      SimConfig
	group    Config
	rare     bool // the load, see SimConfig.Think
	random   *rand.Rand
	machines []dmutex.Machine
	tracer   tracer
	tick     float64               // between two ticks of a machine, 0 if it has none
	place    map[dmutex.NodeID]int // in machines
	agenda   search.Agenda[*event]
	now      int64
	arrival  []int64 // of the last message, by sender and receiver; none if delays are constant

	requests int     // made so far
	releases int     // likewise
	left     int64   // when the last one was
	asked    []int64 // by node: when it requested
	turn     []int   // by node: how many releases were before that
	inside   dmutex.NodeID
	sharers  []dmutex.NodeID // inside
	fences   [2]uint64       // the highest of the grants to hold it alone, and to share it
	events   int             // since the last entry or release, see stuck
	before   int             // messages sent before the present request, if the load is rare

	report SimReport
}

// An event is something that will happen. Messages that take the same time keep their order.
type event struct {
	do   verb
	node int
	msg  trace.Message // to deliver
}

func newSimulation(c SimConfig) (*simulation, error) {
	n := len(c.Members)
	bad := func(v float64) bool { return math.IsNaN(v) || v < 0 || v > 1e6 }
	switch {
	case n == 0:
		return nil, fmt.Errorf("%w: SimConfig.Members is empty", dmutex.ErrMisuse)
	case c.Entries < 1:
		return nil, fmt.Errorf("%w: SimConfig.Entries is %d, and must be at least 1", dmutex.ErrMisuse, c.Entries)
	case !math.IsInf(c.Think, 1) && bad(c.Think) || bad(c.Hold) || bad(c.Tick):
		return nil, fmt.Errorf("%w: SimConfig.Think, Hold and Tick are %v, %v and %v, and must be from 0 to 1e6 T (Think may be +Inf)",
			dmutex.ErrMisuse, c.Think, c.Hold, c.Tick)
	case !(c.Shares >= 0 && c.Shares <= 1):
		return nil, fmt.Errorf("%w: SimConfig.Shares is %v, and must be from 0 to 1", dmutex.ErrMisuse, c.Shares)
	case c.Delay > Exponential:
		return nil, fmt.Errorf("%w: SimConfig.Delay is %d, which does not exist", dmutex.ErrMisuse, c.Delay)
	}
	s := &simulation{
		cfg:    c,
		group:  Config{Algorithm: c.Algorithm, Members: c.Members},
		rare:   math.IsInf(c.Think, 1),
		random: rand.New(rand.NewPCG(c.Seed, 0)),
		place:  make(map[dmutex.NodeID]int, n),
		asked:  make([]int64, n),
		turn:   make([]int, n),
		tracer: newTracer(c.Trace),
		report: SimReport{ByNode: make([]int, n)},
	}
	if c.Delay != Constant {
		s.arrival = make([]int64, n*n)
	}
	var err error
	if s.machines, err = s.group.births(); err != nil {
		return nil, err
	}
	for i, self := range c.Members {
		s.tracer.born(0, s.group.start(i), s.machines[i])
		s.place[self] = i
	}
	if _, ok := s.machines[0].(dmutex.Ticker); ok {
		s.tick = c.Tick
	}
	if _, ok := s.machines[0].(dmutex.Sharer); c.Shares > 0 && !ok {
		return nil, fmt.Errorf("%w: SimConfig.Shares is %v, but the machines are no Sharers", dmutex.ErrMisuse, c.Shares)
	}
	return s, nil
}

// after plans what node i does.
func (s *simulation) after(time float64, do verb, i int) {
	s.agenda.Plan(s.now+int64(math.Round(time*unit)), &event{do: do, node: i})
}

// think plans the next request of node i.
func (s *simulation) think(i int) { s.after(s.cfg.Think*s.random.ExpFloat64(), request, i) }

// anybody plans the request of a node drawn at random.
func (s *simulation) anybody(time float64) { s.after(time, request, s.random.IntN(len(s.machines))) }

func (s *simulation) run() error {
	if s.tick > 0 {
		for i := range s.machines {
			s.after(s.tick*s.random.Float64(), tick, i)
		}
	}
	if s.rare {
		s.anybody(0)
	} else {
		for _, i := range s.random.Perm(len(s.machines)) {
			s.think(i)
		}
	}
	for s.report.Entries < s.cfg.Entries || s.inside != dmutex.None || len(s.sharers) > 0 || s.tick == 0 {
		if s.agenda.Len() == 0 {
			if wrong := s.silence(); wrong != nil || s.requests == s.cfg.Entries {
				return wrong
			}
			s.before = s.report.Messages
			s.anybody(0)
		}
		if wrong := s.step(s.agenda.Take()); wrong != nil {
			return wrong
		}
	}
	return nil
}

// silence looks at a group in which nothing will happen by itself.
func (s *simulation) silence() error {
	for i, m := range s.machines {
		if m.Phase() == dmutex.Waiting {
			return waits(s.cfg.Members[i])
		}
	}
	if s.rare {
		s.report.Cost.add(float64(s.report.Messages - s.before))
	}
	return nil
}

func (s *simulation) step(at int64, e *event) error {
	s.now = at
	if s.events++; s.stuck() {
		return search.Wrong(ErrLivelock, "%d events since a node last entered or left", s.events)
	}
	i, m, self := e.node, s.machines[e.node], s.cfg.Members[e.node]
	switch e.do {
	case request:
		if s.requests == s.cfg.Entries {
			return nil
		}
		s.requests++
		s.asked[i], s.turn[i] = s.now, s.releases
		if s.cfg.Shares > 0 && s.random.Float64() < s.cfg.Shares {
			e.do = share
		}
	case tick:
		s.after(s.tick, tick, i)
	}
	was := local{self: self, phase: m.Phase(), fence: m.Fence(), shared: shares(m)}
	out, wrong := s.group.act(m, &was, e.do, e.msg.Message)
	if wrong != nil {
		return wrong
	}
	for _, o := range out {
		s.send(i, o)
	}
	s.tracer.did(int64(inT(s.now)*second), self, e.do, e.msg, m)
	if e.do == release {
		s.leave(i, was.shared)
	} else if was.phase != dmutex.Held && m.Phase() == dmutex.Held {
		return s.enter(i)
	}
	return nil
}

// stuck reports whether far more has happened since the last entry or release
// than an entry takes. Where there are ticks, much may happen while nobody waits.
func (s *simulation) stuck() bool {
	n, ticks := float64(len(s.machines)), 0.0
	if s.tick > 0 {
		ticks = 1 / s.tick
		if s.inside != dmutex.None || s.requests == s.report.Entries {
			s.events = 0
		}
	}
	return float64(s.events) > 1e6+100*n*n*(1+ticks)
}

// send puts a message on the wire.
func (s *simulation) send(from int, msg dmutex.Message) {
	to := s.place[msg.To]
	s.report.Messages++
	arrives := s.now + s.delay()
	if s.arrival != nil {
		last := &s.arrival[from*len(s.machines)+to]
		arrives = max(arrives, *last)
		*last = arrives
	}
	s.agenda.Plan(arrives, &event{do: deliver, node: to, msg: s.tracer.send(msg.Clone())})
}

func (s *simulation) delay() int64 {
	switch s.cfg.Delay {
	case Uniform:
		return s.random.Int64N(2*unit + 1)
	case Exponential:
		return int64(s.random.ExpFloat64() * unit)
	default:
		return unit
	}
}

// enter checks the grant of node i, and measures it.
func (s *simulation) enter(i int) error {
	self, fence := s.cfg.Members[i], s.machines[i].Fence()
	last, other, mode := s.fences[0], s.inside, 0
	if shares(s.machines[i]) {
		mode = 1
	} else if last = max(last, s.fences[1]); len(s.sharers) > 0 {
		other = s.sharers[0]
	}
	if wrong := enters(self, fence, last, other); wrong != nil {
		return wrong
	}
	if mode == 1 {
		s.sharers = append(s.sharers, self)
	} else {
		s.inside = self
	}
	s.fences[mode], s.events = max(s.fences[mode], fence), 0
	s.report.Entries++
	s.report.ByNode[i]++
	s.report.Wait.add(inT(s.now - s.asked[i]))
	if s.turn[i] < s.releases {
		s.report.Next.add(inT(s.now - s.left))
	}
	s.after(s.cfg.Hold, release, i)
	return nil
}

// leave notes that node i has left, and plans the next request.
func (s *simulation) leave(i int, shared bool) {
	s.left, s.events = s.now, 0
	if shared {
		s.sharers = slices.DeleteFunc(s.sharers, func(id dmutex.NodeID) bool { return id == s.cfg.Members[i] })
	} else {
		s.inside = dmutex.None
	}
	s.releases++
	switch {
	case !s.rare:
		s.think(i)
	case s.tick > 0:
		s.anybody(s.random.Float64() * float64(len(s.machines)))
	}
}
