package consent

import (
	"slices"

	"github.com/dmutex/dmutex/internal/membership"
)

// Rule 4.3: how a life of the strict mode leaves.

// Leave begins the exit of this life. The caller has released all locks and makes no
// more requests. The exit is over when the phase is Left.
func (m *Machine) Leave(now int64) membership.Output {
	if !m.ended() && !m.leaving {
		m.leaving, m.me().leaving, m.stayed = true, true, m.highest
		m.round = 0 // it was begun by a life that stayed
		m.beginAt = now
	}
	return m.flush(now)
}

// mayGo lets a leaving life go that is in no view, if nobody needs its promise: all
// that are there, and all to whom it is bound by a promise of its own, have promised
// its round, and know of no view with a life of its number.
func (m *Machine) mayGo() {
	if !m.leaving || m.trouble { // in trouble it was told of a view with it, see learnView
		return
	}
	me := m.me().node
	alone := !slices.ContainsFunc(m.members, func(p member) bool { return p.node != me && p.life != 0 })
	for i := range m.members {
		p := &m.members[i]
		if p.life != 0 && p.promise == nil || p.bound != 0 && p.life != p.bound && !alone {
			return
		}
		if p.promise != nil && (p.promise.Installed.Life(me) != 0 || p.promise.Completed.Life(me) != 0) {
			return
		}
	}
	m.becomeLeft()
}

// mayEnd ends a leaving life when nobody needs it any more.
func (m *Machine) mayEnd() {
	if !m.ended() && m.leaving && (m.frees(m.exit) || m.in.View.Epoch > 0 &&
		slices.ContainsFunc(m.members, func(p member) bool { return m.frees(p.complete) })) {
		m.becomeLeft()
	}
}

// frees reports whether this leaving life is outside v and all members of v have told
// it that v is complete, by lives that still count. The newest view without it may
// never be complete: its members may leave, too.
func (m *Machine) frees(v membership.View) bool {
	return v.Epoch > m.stayed && !slices.ContainsFunc(m.members, func(p member) bool {
		life := v.Life(p.node)
		return life != 0 && (life != p.newest || p.complete.Epoch < v.Epoch)
	})
}
