package membership

// This file keeps epochs behind the clock, so that a group that is founded later begins
// higher.

// due returns when the view may act: a second later for each epoch since base.
func (m *Machine) due() int64 {
	if !m.began {
		return m.resetAt
	}
	return min(m.baseAt+int64(m.view.Epoch-m.base)*second, m.resetAt+maxWait)
}

// pace takes in by how much the view is ahead of its time, or behind it, by a
// peer's count. The latest counts.
func (m *Machine) pace(now, wait int64) {
	if wait == unpaced {
		return
	}
	if at := now + min(wait, maxWait); !m.began || at > m.due() {
		m.began, m.base, m.baseAt = true, m.view.Epoch, at
	}
	m.actAt = m.due()
}

// epochAbove returns the lowest epoch in which there is room above a fence.
func epochAbove(fence uint64) uint32 {
	if epoch := uint32(fence >> 32); uint32(fence) < 1<<31 {
		return epoch
	} else {
		return epoch + 1
	}
}

// clockAt returns the wall clock, by the time that has passed since it was read.
func (m *Machine) clockAt(now int64) uint64 { return clockAfter(m.clock, now-m.bornAt) }

// clockAfter returns the wall clock, as a fence, when it was clock some nanoseconds
// ago. It returns 0 if there was no clock.
func clockAfter(clock uint64, passed int64) uint64 {
	if clock == 0 {
		return 0
	}
	return clock + uint64(passed/second)<<32
}

// aheadOf returns by how much an epoch is ahead of the wall clock, in nanoseconds. It
// returns 0 if it is not, or if there is no clock or it is useless.
func aheadOf(clock uint64, epoch uint32) int64 {
	ahead := int64(epoch) - int64(clock>>32)
	if clock == 0 || ahead < 0 || ahead*second > maxWait {
		return 0
	}
	return ahead * second
}
