package stream

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A twinPair is a pair in which the node of b has several lives. Each of them that is not
// away hears what a sends.
type twinPair struct {
	*pair
	lives []*Stream
	away  map[*Stream]bool
}

// newTwins returns a pair that has met, and a second life of b that a has not met.
func newTwins(t testing.TB) (p *twinPair, b, twin *Stream) {
	p = &twinPair{pair: meet(t), away: make(map[*Stream]bool)}
	twin = newSession(t, 33)
	p.lives = []*Stream{p.b, twin}
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

// TestSecondLifeIsRefused: a life that answers is not replaced, whichever of the two is
// faster, and the other learns that soon.
func TestSecondLifeIsRefused(t *testing.T) {
	for _, fast := range []bool{false, true} {
		p, b, twin := newTwins(t)
		if fast {
			slices.Reverse(p.lives)
		}
		p.until(100 * millisecond)
		require.Equal(t, []event{taken}, p.seen[twin])
		for range 100 {
			p.send(p.a, "to b")
			p.send(b, "from b")
			p.send(twin, "from its twin")
			p.until(p.now + 100*millisecond)
		}
		require.Equal(t, []event{met}, p.seen[p.a])
		require.Equal(t, []event{met}, p.seen[b])
		require.Len(t, p.got[b], 100)
		require.Len(t, p.got[p.a], 100)
		require.NotContains(t, p.seen[twin], met)
		require.Empty(t, p.got[twin])
	}
}

// TestRefusalOfAHigherLife: it learns who refuses it, and not the life for which it is refused.
func TestRefusalOfAHigherLife(t *testing.T) {
	p, b, twin := newTwins(t) // a is 11, b is 22
	p.away[twin] = true
	p.carry(p.a, flush(twin, p.now)[0])
	var frames [][]byte
	for range 100 {
		for _, f := range flush(p.a, p.now) {
			if ints, _ := split(f); kind(ints[0]) == refused {
				require.Equal(t, []uint64{uint64(refused), 11, 33, 1}, ints)
				frames = append(frames, f)
			} else {
				p.carry(b, f)
			}
		}
		for _, f := range flush(b, p.now) {
			p.carry(p.a, f)
		}
		p.now += millisecond
	}
	require.Len(t, frames, 1)
	in, err := twin.Handle(p.now, frames[0])
	require.NoError(t, err)
	require.Equal(t, Input{Taken: 1}, in)
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
			if ints, _ := split(f); kind(ints[0]) == refused {
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
	b.Close()
	p.until(p.now + 3000*millisecond)
	require.Equal(t, []event{met, left, met}, p.seen[p.a])
	require.Equal(t, []event{met}, p.seen[twin])
	p.send(p.a, "welcome")
	p.until(p.now + 100*millisecond)
	require.Equal(t, []string{"welcome"}, p.got[twin])
	p.carry(twin, late)
	p.until(p.now + 1000*millisecond)
	require.Equal(t, []event{met}, p.seen[twin])
}

// TestSilentPeerIsReplaced: a silent peer is replaced soon after its grace, and not before.
func TestSilentPeerIsReplaced(t *testing.T) {
	p, b, twin := newTwins(t)
	p.away[b] = true
	start := p.now
	p.until(start + defaultPace.grace)
	require.Equal(t, []event{met}, p.seen[p.a])
	p.until(start + defaultPace.grace + 25*millisecond)
	require.Equal(t, []event{met, met}, p.seen[p.a])
	require.Equal(t, []event{met}, p.seen[twin])

	// The first life goes on, and says something.
	p.away[b] = false
	p.send(b, "from the past")
	p.until(p.now + 60*millisecond)
	require.Contains(t, p.seen[b], taken)
	require.Equal(t, []event{met, met}, p.seen[p.a])

	// Even if the second is gone then, the first does not come back.
	p.away[twin] = true
	p.seen[b] = nil
	p.until(p.now + 10_000*millisecond)
	require.Contains(t, p.seen[b], taken)
	require.Equal(t, []event{met, met}, p.seen[p.a])
	require.Empty(t, p.got[p.a])
}

// TestDoubtEnds: a peer that failed to answer once, long ago, has its whole grace again.
func TestDoubtEnds(t *testing.T) {
	p, b, twin := newTwins(t)
	p.away[b] = true
	p.until(100 * millisecond)
	p.away[twin] = true
	p.until(5000 * millisecond)
	require.Equal(t, int64(math.MaxInt64), p.a.Deadline())
	p.away[twin] = false
	doubted := p.a.rival
	for p.a.rival == doubted {
		p.until(p.now + millisecond)
	}
	p.until(p.now + defaultPace.grace - 2*millisecond)
	require.Equal(t, []event{met}, p.seen[p.a])
	p.until(p.now + 50*millisecond)
	require.Equal(t, []event{met, met}, p.seen[p.a])
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
	require.Contains(t, p.seen[b], taken)
	require.EqualValues(t, 33, p.a.Peer())
}

// TestPeerThatAcknowledgesNothing: a peer that was silent for as long as its grace is
// replaced at once.
func TestPeerThatAcknowledgesNothing(t *testing.T) {
	p, b, _ := newTwins(t)
	p.away[b] = true
	twin := p.lives[1]
	p.away[twin] = true
	p.send(p.a, "in vain")
	p.until(400 * millisecond)
	p.away[twin] = false
	start := p.now
	for len(p.seen[twin]) == 0 {
		p.until(p.now + millisecond)
	}
	require.Equal(t, []event{met, met}, p.seen[p.a])
	require.LessOrEqual(t, p.now-start, int64(210*millisecond), "when it has asked")
	require.EqualValues(t, 33, p.a.Peer())
}

// TestLowerLifeIsRefusedAtOnce: it also learns which life it must exceed.
func TestLowerLifeIsRefusedAtOnce(t *testing.T) {
	p, _, _ := newTwins(t)
	lower := newSession(t, 12)
	p.now += defaultPace.minTimeout // a has just answered
	p.carry(p.a, flush(lower, p.now)[0])
	frames := flush(p.a, p.now)
	require.Len(t, frames, 1)
	told, _ := split(frames[0])
	require.Equal(t, []uint64{uint64(refused), 1, 12, 22}, told, "and not which life it has asked")
	in, err := lower.Handle(p.now, frames[0])
	require.NoError(t, err)
	require.Equal(t, Input{Taken: 22}, in)
	require.Equal(t, p.now+defaultPace.maxTimeout, lower.Deadline())
}

// TestLifeAheadOfTheClock: a life above the bound has no effect, until the bound rises.
func TestLifeAheadOfTheClock(t *testing.T) {
	p := meet(t, func(s *Stream) { s.cfg.MaxLife = 32 })
	before := string(p.a.appendState(nil))
	twin := newSession(t, 33)
	ask := flush(twin, p.now)[0]
	for _, frame := range [][]byte{ask, join([]uint64{uint64(refused), 22, 11, 33}, nil)} {
		in, err := p.a.Handle(p.now, frame)
		require.ErrorIs(t, err, dmutex.ErrPeer)
		require.Zero(t, in)
		require.Equal(t, before, string(p.a.appendState(nil)))
	}
	p.a.SetMaxLife(33)
	_, err := p.a.Handle(p.now, ask)
	require.NoError(t, err)
	require.NotEqual(t, before, string(p.a.appendState(nil)))
}

// TestOtherGroup: both sides report it, also a side that has a peer, and they do not
// answer each other forever.
func TestOtherGroup(t *testing.T) {
	p := meet(t)
	other := newSession(t, 33, func(s *Stream) { s.cfg.Settings = "other" })
	p.now += defaultPace.minTimeout // a has just answered
	_, err := p.a.Handle(p.now, flush(other, p.now)[0])
	require.Equal(t, GroupError{protocol.Spoken, "other"}, err)
	require.ErrorIs(t, err, dmutex.ErrPeer)
	answer := flush(p.a, p.now)
	require.Len(t, answer, 1)
	_, err = other.Handle(p.now, answer[0])
	require.Equal(t, GroupError{protocol.Spoken, settings}, err)
	require.Empty(t, flush(other, p.now))
	answers := 0
	for range 1000 {
		_, err = p.a.Handle(p.now, greeting(33, 0, "other"))
		require.Equal(t, GroupError{protocol.Spoken, "other"}, err)
		answers += len(flush(p.a, p.now))
		p.now += millisecond
	}
	require.LessOrEqual(t, answers, 50)
	require.Equal(t, []event{met}, p.seen[p.a])
}

// TestRefusalOfAFormerLife: a refusal by a former life of the peer is out of date if it names a lower
// life of ours. A refusal by the next life counts, and so does one that names a higher life.
func TestRefusalOfAFormerLife(t *testing.T) {
	p := meet(t) // 11 and 22
	for _, c := range []struct {
		from, life uint64
		taken      uint64
	}{{10, 21, 0}, {12, 21, 21}, {10, 23, 23}, {12, 23, 23}} {
		in, err := p.b.Handle(p.now, join([]uint64{uint64(refused), c.from, 22, c.life}, nil))
		require.NoError(t, err)
		require.Equal(t, c.taken, in.Taken, "%v", c)
	}
}

// TestOnlyThatLife: with Config.Peer, no frame of another life, lower or higher, changes anything.
func TestOnlyThatLife(t *testing.T) {
	one := newSession(t, 11, func(s *Stream) { s.cfg.Peer = 22 })
	stranger := func(now int64) {
		before := one.appendState(nil)
		for _, life := range []uint64{21, 23} {
			for _, f := range [][]byte{greeting(life, 0, settings), greeting(life, 11, "others"), join([]uint64{uint64(refused), life, 11, 12}, nil)} {
				_, err := one.Handle(now, f)
				require.ErrorIs(t, err, ErrOther)
				require.Equal(t, before, one.appendState(nil))
			}
		}
	}
	stranger(0)
	in, err := one.Handle(0, greeting(22, 11, settings))
	require.NoError(t, err)
	require.EqualValues(t, 22, in.Met)
	stranger(1)
}

// TestFarPeerIsNotReplaced: a peer that is far away has two round trips to answer.
func TestFarPeerIsNotReplaced(t *testing.T) {
	const trip = 700 * millisecond
	for _, late := range []bool{false, true} {
		p, b, twin := newTwins(t)
		p.a.stats.RoundTrip = trip
		p.away[b] = true // what it hears in time is played below
		start := p.now
		p.until(start + trip)
		require.Equal(t, []event{met}, p.seen[p.a])
		if late {
			p.until(start + 2*trip + 25*millisecond)
			require.Equal(t, []event{met, met}, p.seen[p.a])
			continue
		}
		p.away[b] = false
		p.until(start + 3*trip)
		require.Equal(t, []event{met}, p.seen[p.a])
		require.Contains(t, p.seen[twin], taken)
	}
}
