package group

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/trace"
)

const (
	// nagAfter is how long a node waits for members before it logs that, doubled each time.
	nagAfter = 3 * time.Second

	// sendAgain is how soon a message that found no room in the mail is tried again.
	sendAgain = 10 * time.Millisecond

	// A message that is long takes no more room in the mail than this: the locks need the rest.
	roomAhead = stream.Buffer / 4
)

// What a Group does by time alone, beside what its machine does.
const (
	nag   = iota // log which members this node waits for
	send         // try again to send what is pending
	watch        // look which members are there
	look         // ask the store who lives
	give         // release lost holds
	say          // log that this node waits for leases
)

// Trouble asks for the view of the epoch to be replaced. The first trouble of an epoch counts. It may
// be called under a mutex.
func (g *Group) Trouble(epoch uint64, err error) {
	for former := g.troubled.Load(); former < epoch; former = g.troubled.Load() {
		if g.troubled.CompareAndSwap(former, epoch) {
			g.running.Go(func() { g.replace(epoch, err) })
		}
	}
}

func (g *Group) replace(epoch uint64, why error) {
	g.do(func(now int64) membership.Output {
		if epoch == g.Locks.Epoch() {
			g.cause = why
			g.logTrouble(why)
			g.trace(trace.Event{What: trace.Trouble, Err: why.Error()})
		}
		return g.who.Trouble(now, epoch)
	})
	g.Mail.Flush()
}

// do gives the machine an input, and follows it.
func (g *Group) do(input func(now int64) membership.Output) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.who.now()
	g.apply(now, input(now))
	g.wake()
}

// Expired ends what the lease has not covered until now.
func (g *Group) Expired() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.who.now()
}

// happens tells the authority what has happened to this node.
func (g *Group) happens(e membership.Event) {
	g.do(func(now int64) (none membership.Output) {
		g.who.event(now, e)
		return none
	})
}

// pause notes that the locks cease to act.
func (g *Group) pause(now int64) {
	if g.acting.Swap(false) {
		g.since = now
		g.timers[nag] = now + int64(nagAfter)
	}
}

// apply does what an input of the machine has caused.
func (g *Group) apply(now int64, out membership.Output) {
	for i := range out.Events {
		switch e := out.Events[i].(type) {
		case membership.Installed:
			g.post(now, &out)
			g.freeze(now, &e)
		case membership.Acts:
			g.post(now, &out)
			g.ready = &e
			g.mayAct(now)
		default:
			g.who.event(now, e)
		}
	}
	g.post(now, &out)
}

// post takes messages for the peers that the record or the configuration has.
func (g *Group) post(now int64, out *membership.Output) {
	for _, m := range out.Messages {
		if p := g.peer(m.To); p != nil {
			m.Past = g.withNames(m.Past)
			p.pending = append(p.pending, m)
		}
	}
	out.Messages = nil
	g.send(now)
}

// freeze ends the locks of the former view, and reports them in a newer one.
func (g *Group) freeze(now int64, e *membership.Installed) {
	view := e.View
	g.frozen, g.ready = now, nil
	g.pause(now)
	start := dmutex.Start{ // but for the holder
		Self: g.Self(), Members: view.Nodes(), Fence: epochs.First(view.Epoch), Limit: epochs.Last(view.Epoch),
	}
	g.Locks.Freeze(view.Epoch, start)
	if _, g.refusal = g.cfg.Algorithm(start); g.refusal != nil {
		g.refusal = fmt.Errorf("the algorithm refuses the members %v, so nothing is granted until the group changes: %w", view.Nodes(), g.refusal)
		g.logTrouble(g.refusal)
	}
	g.running.Go(func() { g.report(start, view.Epoch, e.Whole) })
}

// report reports the locks in a view, unless that was overtaken. There may be very many, and renewals do not
// wait for them: so they are gone through without the mutex.
func (g *Group) report(start dmutex.Start, epoch uint64, whole bool) {
	holds, word, frozen := g.Locks.Frozen(epoch, whole)
	if !frozen {
		return
	}
	g.do(func(now int64) (out membership.Output) {
		if g.who.stands(now).view.Epoch == epoch {
			g.trace(trace.Event{What: trace.View, Peer: start.Self, Life: g.life, N: epoch, Members: start.Members, Limit: start.Limit})
			out = g.who.Report(now, holds, word)
		}
		return out
	})
	g.Mail.Flush()
}

// settle lets the locks go on that waited for something that has come, likewise.
func (g *Group) settle(waited bool) {
	if waited {
		g.running.Go(func() {
			g.Locks.Settle()
			g.Mail.Flush()
		})
	}
}

// mayAct lets the locks act if their view does, and nothing else forbids it.
func (g *Group) mayAct(now int64) {
	switch {
	case g.ready == nil || g.acting.Load() || g.refusal != nil || !g.covered() || g.doubted:
	case g.last.Epoch == g.ready.View.Epoch:
		g.acts(now)
	case g.begun < g.ready.View.Epoch:
		g.act(g.ready)
	}
}

// wake asks for a Tick when there is something to do by time alone.
func (g *Group) wake() {
	if at := min(g.who.Deadline(), g.timers.Next()); at != due.Never {
		g.Mail.Wake(time.Duration(at - g.time()))
	}
}

// time returns the time by the clock of inputs.
func (g *Group) time() int64 {
	if g.clock != nil {
		return g.clock()
	}
	return int64(g.Mail.Now().Age())
}

// send passes some of the pending messages to the mail, as far as there is room. The rest has its turn when
// the inputs that wait for the mutex have had theirs.
func (g *Group) send(now int64) {
	g.timers[send] = due.Never
	for _, id := range g.Others() {
		p, at := g.peer(id), int64(due.Never)
		for sent := 0; at == due.Never && (len(p.parts) > 0 || len(p.pending) > 0); {
			if len(p.parts) == 0 {
				p.parts = next(&p.pending, g.Mail.MaxMessage())
			}
			full := p.parts[len(p.parts)-1][0] == saysSome && g.Mail.Backlog(id) > roomAhead
			if !full {
				_, err := g.Mail.Send(id, p.parts[0])
				full = errors.Is(err, stream.ErrFull)
			}
			if full {
				at = now + int64(sendAgain)
			} else if sent, p.parts = sent+len(p.parts[0]), p.parts[1:]; sent > atOnce {
				at = now
			}
		}
		g.timers[send] = min(g.timers[send], at)
	}
}

// act lets the locks of the installed view begin, likewise.
func (g *Group) act(e *membership.Acts) {
	g.begun = e.View.Epoch
	g.running.Go(func() {
		if !g.Locks.Act(e.View.Epoch, e.Holdings, e.Past) {
			return
		}
		g.do(func(now int64) (none membership.Output) {
			if g.ready == e {
				g.acted(now, e)
			}
			return none
		})
		g.Mail.Flush()
		g.Locks.Sweep()
	})
}

// acted notes that the locks of the installed view have begun.
func (g *Group) acted(now int64, e *membership.Acts) {
	view := e.View
	began := g.since
	if g.shown.Changes == 0 {
		began = g.frozen // to wait for the first members is no change
	}
	g.shown = View{
		Epoch: view.Epoch, Members: view.Nodes(), Acts: true, Changes: g.shown.Changes + 1,
		Joined: view.Without(g.last).Nodes(), Left: g.last.Without(view).Nodes(), Took: time.Duration(now - began), Cause: g.cause,
	}
	g.last, g.cause, g.rival = view, nil, 0
	g.mayAct(now)
	g.trace(trace.Event{What: trace.Ready, N: view.Epoch})
	if ahead := g.ahead(view.Epoch); ahead > 0 {
		after := "a restart of all members"
		if g.cfg.Store != nil {
			after = "a loss of the record"
		}
		g.LogOften(slog.LevelWarn, "epochs are ahead of the clock: a clock is or was wrong, and "+after+" needs Config.Fence", slog.Duration("ahead", ahead))
	}
	g.LogOften(slog.LevelInfo, "view acts", g.shown.attrs(g.AllCalled(g.shown.Left))...)
	g.cfg.Up.Acts(g.shown)
}

// acts notes that the locks act, unless nothing more is granted.
func (g *Group) acts(now int64) {
	if g.Locks.Why() != nil {
		return
	}
	g.acting.Store(true)
	close(g.next)
	g.next = make(chan struct{})
	g.since, g.timers[nag] = now, due.Never
}

// handle takes a part of a message of package membership.
func (g *Group) handle(from dmutex.NodeID, p *peer, part []byte) {
	if p.refused {
		p.refused = part[0] != saysLast
		return
	}
	message := part[1:]
	if p.size += len(part); part[0] == saysMore || len(p.part) > 0 {
		message = append(p.part, message...)
	}
	if p.part = nil; part[0] == saysMore && len(message) <= maxPart {
		p.part = message
		return
	}
	msg, err := readMessage(message, g.limit)
	p.size += records(&msg)
	if err == nil && (p.size > maxReport || len(p.some) > 0 && p.some[0].Kind != msg.Kind) {
		err = dmutex.PeerMistake("its parts are too many, or are of two messages")
	}
	if err != nil {
		p.again()
		p.refused = part[0] != saysLast
		g.Refused(from, fmt.Errorf("message about views: %w", err))
		return
	}
	if p.some = append(p.some, msg); part[0] == saysSome {
		return
	}
	msg = join(p.some)
	p.again()
	msg.From, msg.To = from, g.Self()
	g.do(func(now int64) (out membership.Output) {
		if g.peer(from) != nil {
			g.hearNames(msg.Past)
			if out, err = g.who.Handle(now, msg); err != nil {
				g.Refused(from, err)
			}
		}
		return out
	})
}

// again lets the next part be the first one of a message.
func (p *peer) again() { p.part, p.some, p.size, p.refused = nil, nil, 0, false }

// maxReport bounds the memory that a message takes until the last part of it is there: what 4,096 clients with
// 1,000 locks each hold, with names of 80 bytes.
const maxReport = 512 << 20

// maxPart bounds what is read at once, in bytes.
const maxPart = 4 * atOnce

// Tick does what is due by time.
func (g *Group) Tick(int64) int64 {
	var missing []dmutex.NodeID // to be logged
	var why error               // what else is waited for
	g.mu.Lock()
	now := g.who.now()
	g.apply(now, g.who.Tick(now))
	g.wake()
	waited := slog.Duration("waited", time.Duration(now-g.since))
	if g.timers.Due(nag, now) {
		g.timers[nag] = now + max(now-g.since, int64(nagAfter))
		if g.Locks.Why() == nil {
			st := g.standing(now)
			missing, why = st.missing, st.why
		}
		g.wake()
	}
	g.mu.Unlock()
	if why != nil {
		g.Log(slog.LevelWarn, "waiting", waited, slog.Any("err", why))
	}
	if len(missing) > 0 { // asks the link, which might not answer in time
		g.running.Go(func() {
			g.Log(slog.LevelWarn, "waiting for members", waited, slog.String("for", g.Describe(missing).Error()))
		})
	}
	return due.Never // wake has said when it is due
}
