package world

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport"
)

// What lies between processes: the link of a member, the connections of a client, the store of a record, and what
// proves that a process is dead. Each is the shipped one in memory, with what may happen to it on the way.

// A road is the link of a member.
type road struct {
	transport.DynamicLink
	p *process
}

// Open implements [transport.Link].
func (l road) Open(host transport.Host) error {
	l.p.host.Store(&host)
	deliver := host.Deliver
	host.Deliver = func(from dmutex.NodeID, frames [][]byte) {
		if !l.p.deaf.Load() {
			deliver(from, frames)
		}
	}
	return l.DynamicLink.Open(host)
}

// Send implements [transport.Link].
func (l road) Send(to dmutex.NodeID, frame []byte) error {
	p := l.p
	if p.mute.Load() {
		return nil
	}
	f := &p.w.frames
	if p.w.calm.Load() {
		f = &frames{late: time.Duration(p.w.lag.Load())}
	}
	if f.none() {
		return l.DynamicLink.Send(to, frame)
	}
	var lost, twice, veryLate bool
	var late time.Duration
	p.draw(func(luck *rand.Rand) {
		lost, twice, veryLate = luck.Float64() < f.lost, luck.Float64() < f.twice, luck.Float64() < f.veryLate
		if f.late > 0 {
			late = time.Duration(luck.Int64N(int64(f.late)))
		}
		if veryLate {
			late = time.Duration(luck.Int64N(int64(2 * leaseOf)))
		}
	})
	if lost {
		return nil
	}
	if twice {
		if err := l.DynamicLink.Send(to, frame); err != nil {
			return err
		}
	}
	if late == 0 {
		return l.DynamicLink.Send(to, frame)
	}
	frame = bytes.Clone(frame)
	stint := p.stints.Load()
	time.AfterFunc(late, func() {
		if p.w.carries || p.stints.Load() == stint {
			_ = l.DynamicLink.Send(to, frame)
		}
	})
	return nil
}

// Become implements [transport.DynamicLink].
func (l road) Become(self dmutex.NodeID) error {
	l.p.stints.Add(1)
	return l.DynamicLink.Become(self)
}

// An archive keeps one record, which may be put back to an older one, deleted, or forgotten.
type archive struct {
	name  string
	lives *registry

	mu     sync.Mutex
	value  []byte
	count  int          // of changes
	past   []string     // values that it had
	forgot int          // how often it has forgotten its record
	until  time.Time    // until then it says so
	told   map[*way]int // how often each way knows of
}

func newArchive(name string, lives *registry) *archive {
	return &archive{name: name, lives: lives, told: make(map[*way]int)}
}

func (a *archive) load(by *way) (value []byte, rev store.Revision, forgot int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, met := a.told[by]
	switch {
	case len(a.value) == 0 && time.Now().Before(a.until):
		return nil, a.revision(), a.forgot, fmt.Errorf("%s: %w", a.name, store.ErrForgotten)
	case met && known < a.forgot: // once, also if there is a record again
		return nil, "", a.forgot, fmt.Errorf("%s: %w", a.name, store.ErrForgotten)
	}
	return bytes.Clone(a.value), a.revision(), a.forgot, nil
}

// tell notes what a way has learned, which it has not if the answer was lost.
func (a *archive) tell(by *way, forgot int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[by] = max(a.told[by], forgot)
}

func (a *archive) swap(value []byte, rev store.Revision) (store.Revision, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if rev != a.revision() {
		return "", store.ErrConflict
	}
	a.put(string(value))
	return a.revision(), nil
}

func (a *archive) put(value string) {
	if len(a.value) > 0 {
		a.past = append(a.past[max(0, len(a.past)-20):], string(a.value))
	}
	a.value = []byte(value)
	a.count++
}

func (a *archive) revision() store.Revision { return store.Revision(fmt.Sprint(a.count)) }

// A way is how one process reaches a record.
type way struct {
	*archive
	p *process
}

var (
	errNotReached = errors.New("the store is not reached")
	errUnanswered = errors.New("the answer of the store is lost")
	errPassing    = errors.New("too many open files")
)

// Load implements [store.Store].
func (s *way) Load(ctx context.Context) (value []byte, rev store.Revision, err error) {
	var forgot int
	err = s.call(ctx, func() error {
		value, rev, forgot, err = s.load(s)
		return err
	}, nil)
	switch {
	case err == nil || errors.Is(err, store.ErrForgotten):
		s.tell(s, forgot)
	default:
		value, rev = nil, ""
	}
	return value, rev, err
}

// Swap implements [store.Store].
func (s *way) Swap(ctx context.Context, value []byte, rev store.Revision) (next store.Revision, err error) {
	value = bytes.Clone(value)
	swap := func() (store.Revision, error) {
		if s.archive == s.p.w.group && s.p.outdated() && len(s.p.w.registered()) == 0 { // it would found the group
			return "", errNotReached
		}
		return s.swap(value, rev)
	}
	err = s.call(ctx, func() error {
		next, err = swap()
		return err
	}, func() { _, _ = swap() })
	if err != nil {
		next = ""
	}
	return next, err
}

// call lets a call reach the record. later is what it does if it takes effect after its end, nil if it has no effect.
func (s *way) call(ctx context.Context, do func() error, later func()) error {
	p, f := s.p, &s.p.w.stores
	p.waits(ctx.Done())
	if p.cutOff.Load() || p.exiled.Load() {
		<-ctx.Done()
		if p.outlives.Load() && !p.dead.Load() { // it breaks the contract
			time.Sleep(leaseOf / 3)
		}
		return ctx.Err()
	}
	if p.w.calm.Load() {
		if err := ctx.Err(); err != nil {
			return err
		}
		return do()
	}
	var fate float64
	var there, back, delay time.Duration
	p.draw(func(luck *rand.Rand) {
		fate = luck.Float64()
		if f.slow > 0 {
			there, back = time.Duration(luck.Int64N(int64(f.slow))), time.Duration(luck.Int64N(int64(f.slow)))
		}
		delay = time.Duration(luck.Int64N(int64(2 * leaseOf)))
	})
	if err := pass(ctx, there); err != nil {
		return err
	}
	if p.exiled.Load() { // what was under way is lost
		<-ctx.Done()
		return ctx.Err()
	}
	happens := func(rate float64) bool {
		fate -= rate
		return fate < 0
	}
	switch {
	case happens(f.lost):
		return errNotReached
	case happens(f.unanswered):
		_ = do()
		return errUnanswered
	case happens(f.later):
		if later != nil {
			time.AfterFunc(delay, later)
		}
		return errUnanswered
	case later != nil && happens(f.conflicts):
		return store.ErrConflict
	case happens(f.unusable):
		return fmt.Errorf("a permission is missing: %w", store.ErrUnusable)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := do()
	if trap := p.trap.Swap(nil); trap != nil && err == nil {
		(*trap)()
		back = leaseOf / 5 // the answer is late
	}
	late := pass(ctx, back)
	p.waits(ctx.Done())
	return cmp.Or(ctx.Err(), late, err)
}

// pass waits, or until the context ends.
func pass(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Forget loses the record, and says so for as long as somebody may rely on it.
func (a *archive) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put("")
	a.forgot++
	a.until = time.Now().Add(leaseOf * 11 / 10)
}

// back puts an old record back, or deletes the present one, and returns what is there then.
func (a *archive) back(luck *rand.Rand) (old string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if luck.IntN(3) > 0 && len(a.past) > 0 {
		old = a.past[luck.IntN(len(a.past))]
	}
	a.put(old)
	return old
}

// delete is what the operator does when all members have stopped.
func (a *archive) delete() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put("")
}

// edit changes the record, as another member would.
func (a *archive) edit(change func(value []byte) []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if next := change(a.value); next != nil {
		a.put(string(next))
	}
}

// A registry knows the lives of all processes, as the kernel of one machine does.
type registry struct {
	mu    sync.Mutex
	count int
	lives map[string]*life
	ended map[string]bool
}

type life struct {
	r    *registry
	p    *process
	name string
	over chan struct{}
}

func newRegistry() *registry {
	return &registry{lives: make(map[string]*life), ended: make(map[string]bool)}
}

func (l *life) Name() string   { return l.name }
func (l *life) File() *os.File { return nil }

func (l *life) Close() error {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if l.r.lives[l.name] != nil { // else its process has died
		close(l.over)
		delete(l.r.lives, l.name)
		l.r.ended[l.name] = true
	}
	return nil
}

// died ends the lives of a process.
func (r *registry) died(p *process) {
	r.mu.Lock()
	var dead []*life
	for _, l := range r.lives {
		if l.p == p {
			dead = append(dead, l)
		}
	}
	r.mu.Unlock()
	for _, l := range dead {
		_ = l.Close()
	}
}

// A proving way knows also who lives. A process that is cut off from the record still knows that, as it is the kernel
// that tells.
type proving struct{ *way }

// Live implements [store.Prover].
func (s proving) Live(ctx context.Context) (store.Life, error) {
	if s.p.dead.Load() {
		return nil, errNotReached
	}
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	s.lives.mu.Lock()
	defer s.lives.mu.Unlock()
	s.lives.count++
	l := &life{r: s.lives, p: s.p, name: strings.ReplaceAll(s.name, " ", "") + fmt.Sprint("L", s.lives.count), over: make(chan struct{})}
	s.lives.lives[l.name] = l
	return l, nil
}

// Over implements [store.Prover].
func (s proving) Over(ctx context.Context, name string) error {
	if err := s.look(ctx); err != nil {
		return err
	}
	s.lives.mu.Lock()
	l, ended := s.lives.lives[name], s.lives.ended[name]
	s.lives.mu.Unlock()
	switch {
	case ended:
		return nil
	case l == nil:
		return store.ErrNoProof
	}
	select {
	case <-l.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Living implements [store.Prover].
func (s proving) Living(ctx context.Context) ([]string, error) {
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	s.lives.mu.Lock()
	all := slices.Sorted(maps.Keys(s.lives.lives))
	s.lives.mu.Unlock()
	mine := strings.ReplaceAll(s.name, " ", "") + "L"
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, mine) }), nil
}

// look is what happens to a look at the lives.
func (s proving) look(ctx context.Context) error {
	f := &s.p.w.stores
	s.p.waits(ctx.Done())
	if s.p.w.calm.Load() {
		return nil
	}
	var errs bool
	var late time.Duration
	s.p.draw(func(luck *rand.Rand) {
		errs = luck.Float64() < f.proverErrs
		if f.proverLate > 0 {
			late = time.Duration(luck.Int64N(int64(f.proverLate)))
		}
	})
	if err := pass(ctx, late); err != nil {
		return err
	}
	if errs {
		return errPassing
	}
	return nil
}
