package world

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex/internal/kit/storm"
)

// rolls replaces one member after the other in order, in calm, while others hold locks, which they give back at any moment
// meanwhile. Nobody notices that.
func (w *World) rolls() {
	w.had = make(map[string]string)
	if !w.tcp && !w.overNATS { // there, frames take their time anyway
		w.lag.Store(int64(5 * time.Millisecond))
	}
	for _, s := range w.slots {
		var holding sync.WaitGroup
		for _, name := range w.names() {
			all := slices.DeleteFunc(w.all(), func(p *process) bool { return p == s.now || p.node == nil && p.client == nil })
			w.holds(&holding, all[w.Luck.IntN(len(all))], name, w.UpTo(leaseOf/50))
		}
		w.leave(s).close(leaseOf, false)
		w.begin(s)
		s.now.stop() // nobody else takes a lock
		s.now.callers.Wait()
		holding.Wait()
	}
	w.lag.Store(0)
	time.Sleep(leaseOf)
}

// holds lets a process hold a lock for so long.
func (w *World) holds(holding *sync.WaitGroup, p *process, name string, long time.Duration) {
	within := leaseOf
	if w.session > 0 {
		within *= 2 // a client whose session is short may not find the next member in time to give back what it has released
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	h, err := p.lock(name).Acquire(ctx)
	if err != nil {
		w.Wrong("while members are replaced in order, %s does not get %s, which %s had: %v", p.who, name, w.had[name], err)
		return
	}
	w.had[name] = p.who
	holding.Go(func() {
		w.Judge(storm.Stay{Who: p.who, Lock: name, Fence: h.Fence(), Hold: h, Margin: w.margin(), Gives: p.gives}, func() { time.Sleep(long) })
		if err := h.Release(); err != nil {
			w.Wrong("%s has lost %s while members were replaced in order: %v", p.who, name, err)
		}
	})
}
