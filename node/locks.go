package node

import (
	"context"
	"hash/maphash"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync/atomic"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/membership"
)

// locks is all locks at this node, in shards by name. It sends the messages of the
// machines by mail. The views call freeze and act; the locks call trouble to ask for
// another view.
type locks struct {
	cfg    *Config
	mail   *mail.Mail
	log    *logger // nil without Config.Logger
	seed   maphash.Seed
	shards [shards]shard

	ended context.Context         // nothing more is granted once it has ended
	end   context.CancelCauseFunc // the first cause stays

	clock  *clock        // of the lease; nil without a store
	until  atomic.Int64  // by it: nothing is granted from then on
	expire func()        // ends what is held if that time has come
	halted atomic.Bool   // another process may have replaced this one: nothing is granted until that is known
	parked atomic.Bool   // a lock waits for the end of that, or for the lease to be valid
	lease  atomic.Uint32 // a LeaseState

	lapsed atomic.Pointer[chan struct{}] // closed at the next lapse

	epoch    atomic.Uint64 // of the view that was installed last
	troubled atomic.Pointer[trouble]
	refused  atomic.Uint64 // messages and frames that no correct peer sends
	rested   chan struct{} // poked when a function of Do has returned; Close waits for that
}

const shards = 64

// A trouble is why the view of an epoch is to be replaced.
type trouble struct {
	epoch uint64
	err   error
}

func (ls *locks) init(cfg *Config, m *mail.Mail, log *logger, views *views) {
	ls.cfg, ls.mail, ls.log, ls.clock, ls.expire = cfg, m, log, views.clock(), views.expire
	ls.until.Store(math.MinInt64)
	lapsed := make(chan struct{})
	ls.lapsed.Store(&lapsed)
	ls.seed = maphash.MakeSeed()
	ls.ended, ls.end = context.WithCancelCause(context.Background())
	ls.rested = make(chan struct{}, 1)
	for i := range ls.shards {
		ls.shards[i].locks = ls
		ls.shards[i].table = make(map[string]*lock)
	}
}

// why returns why nothing more is granted, nil while all is well.
func (ls *locks) why() error { return context.Cause(ls.ended) }

// leased reports whether the lease of this node is valid. Without a store it always is.
func (ls *locks) leased() bool { return ls.clock == nil || ls.clock.now() < ls.until.Load() }

// grants reports whether this node may be granted anything at the moment.
func (ls *locks) grants() bool { return !ls.halted.Load() && ls.leased() }

func (ls *locks) shard(name string) *shard {
	return &ls.shards[maphash.String(ls.seed, name)%shards]
}

func (ls *locks) shardOf(name []byte) *shard {
	return &ls.shards[maphash.Bytes(ls.seed, name)%shards]
}

// trouble asks for another view in place of that of the epoch. It may be called
// under a shard's mutex: the goroutine that keeps time passes it on. That of a later
// epoch stays.
func (ls *locks) trouble(epoch uint64, err error) {
	t := &trouble{epoch, err}
	for {
		former := ls.troubled.Load()
		if former != nil && former.epoch > epoch {
			return
		}
		if ls.troubled.CompareAndSwap(former, t) {
			break
		}
	}
	ls.mail.Wake(math.MinInt64)
}

// refuse counts and logs what no correct peer sends.
func (ls *locks) refuse(from dmutex.NodeID, err error) {
	ls.refused.Add(1)
	ls.log.tellOften(slog.LevelWarn, "refused what no correct peer sends", peerAttr(from), slog.Any("err", err))
}

// each calls f for one shard after the other, under its mutex.
func (ls *locks) each(f func(s *shard)) {
	for i := range ls.shards {
		s := &ls.shards[i]
		func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			f(s)
		}()
	}
}

// freeze ends the machines of all older views, and returns what this node holds. self
// is its number in the view.
func (ls *locks) freeze(v membership.View, self dmutex.NodeID) (holds []membership.Hold) {
	ls.epoch.Store(v.Epoch)
	ls.each(func(s *shard) { holds = append(holds, s.freeze(v, self)...) })
	return holds
}

// lapse ends all holds of this node, for the reason given. The locks stay taken until
// their holders release them, or giveBack does. Waiters keep waiting.
func (ls *locks) lapse(lost *error) {
	ls.each(func(s *shard) {
		for _, l := range s.table {
			if l.held != nil {
				l.held.end(lost)
			}
		}
	})
	next := make(chan struct{})
	close(*ls.lapsed.Swap(&next))
}

// giveBack releases what has lapsed, and returns what an Observer is to be told.
func (ls *locks) giveBack() (holds []Hold) {
	ls.each(func(s *shard) {
		for _, l := range slices.Collect(maps.Values(s.table)) { // some will be forgotten meanwhile
			if l.held != nil && l.held.err() != nil {
				var hold Hold
				l.release(l.held.over.Load(), &hold)
				holds = append(holds, hold)
			}
		}
	})
	return holds
}

// resume lets the locks go on after a lapse.
func (ls *locks) resume() {
	ls.each(func(s *shard) {
		for _, l := range slices.Collect(maps.Values(s.table)) {
			l.settle()
		}
	})
}

// act lets the machines of the view be born, with the holders that were reported.
func (ls *locks) act(epoch uint64, holders []membership.Holder) {
	of := make(map[*shard][]membership.Holder)
	for _, h := range holders {
		s := ls.shard(h.Lock)
		of[s] = append(of[s], h)
	}
	ls.each(func(s *shard) { s.act(epoch, of[s]) })
}

// abandon ends all waits and, with the cause given, all holds, and returns what an
// Observer is to be told. Unless release is false it also releases the locks, but for
// those under which a function of Do still runs.
func (ls *locks) abandon(why, lost *error, release bool) (holds []Hold) {
	ls.each(func(s *shard) { holds = append(holds, s.abandon(why, lost, release)...) })
	return holds
}

// works returns the name of a lock under which a function of Do runs, "" if there is
// none.
func (ls *locks) works() (name string) {
	ls.each(func(s *shard) {
		for h := range s.working {
			name = h.lock.name
		}
	})
	return name
}
