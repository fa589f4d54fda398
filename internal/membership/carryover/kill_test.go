package carryover

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// Each condition is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "carryover.go", []machinetest.Edit{
		{"the first report of a lock", "[]Holder{c.holder(first)}", "[]Holder{c.holder(first)}[:0]", "TestHeardOnce"},
		{"reported once, and again", "				c.goes[first.of][first.at] = false\n", "", "TestHeardOnce"},
		{"heard again", "closed || slices.ContainsFunc(kept,", "closed || false && slices.ContainsFunc(kept,", "TestHeardOnce"},
		{"heard alone first", "case a.Shared: // it", "case b.Shared: // it", "TestHeardOnce"},
		{"sharers before a hold alone", "closed || slices", "closed && false || slices", "TestHeardOnce"},
		{"the lowest fence goes on", "cmp.Compare(b.Fence, a.Fence)", "cmp.Compare(a.Fence, b.Fence)", "TestHeardOnce"},
		{"two alone", "if closed = !h.Shared; h.Shared || len(kept) == 0 {", "if closed = !h.Shared; true {", "TestHeardOnce"},
		{"seeds nobody that was heard once", "		c.holder(p).start(start)\n", "		_ = p\n", "TestCarried"},
		{"seeds nobody that was heard again", "		h.start(start)\n", "		_ = h\n", "TestCarried"},
		{"a sharer holds alone", "	if h.Shared {\n		start", "	if false {\n		start", "TestCarried"},
		{"forgotten, listed", "holders != nil && !next", "!next", "TestCarried"},
		{"the start of another lock", "start = dmutex.Start{Sharers: start.Sharers[:0]}", "", "TestCarried"},
		{"forgets no lock of one", "		c.goes[p.of][p.at] = false\n	}\n	delete", "		_ = p\n	}\n	delete", "TestCarried"},
		{"forgets no lock of several", "	delete(c.several, lock)\n", "", "TestCarried"},
	})
	machinetest.Kill(t, "past.go", []machinetest.Edit{
		// Who takes a claim.
		{"claims of nobody", "len(of) > 0 && slices", "slices", "TestMayClaim"},
		{"claims what the last does not hold", "slices.Contains(former, of[len(of)-1]) &&\n", "true &&\n", "TestMayClaim"},
		{"claims of one that lives", "return slices.Contains(view, id) }", "return false }", "TestMayClaim"},
		{"claims before others", "return !slices.Contains(of, id) }", "return false }", "TestMayClaim"},
	})
}
