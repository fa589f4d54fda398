package world

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A mutant is a small change of what ships that brings a fault back which this project, or one like it, has had.
type mutant struct {
	fault string
	file  string // below the root
	was   string
	is    string
	no    string // why no world has found it; empty if one has
}

const (
	ofLocks   = "node/internal/locks/"
	ofGroup   = "node/internal/group/"
	ofLease   = "internal/membership/lease/"
	ofSession = "internal/clientsession/client.go"
	ofRecord  = "internal/lockrecord/machine.go"
)

var mutants = []mutant{
	// Members and their leases.
	{"a renewal counts from its answer", ofLease + "lease.go", "m.term.Confirm(now, sent, m.cfg.Lease)", "m.term.Confirm(now, max(now, sent), m.cfg.Lease)", ""},
	{"others wait for half of a lease", "internal/leases/leases.go", "return (length*101 + 98) / 99", "return length / 2", ""},
	{"nobody waits for those that were excluded", ofLease + "clearing.go", "return c.cleared < unclean", "return c.cleared < unclean && false", ""},
	{"a lock does not wait for former members", ofLocks + "lock.go", "(l.waits() || l.turns())", "(l.waits() && false || l.turns())", ""},
	{"a view acts before all have reported", ofLease + "operate.go", "m.phase == Frozen && m.in.IsComplete() &&", "m.phase == Frozen &&", ""},
	{"a lock that is held is missing in the report", ofLocks + "table.go", "holds = append(holds, membership.Hold{Lock: l.name, Fence: l.held()[0].fence, Shared: l.shared})", "if len(l.name)%2 > 0 { holds = append(holds, membership.Hold{Lock: l.name, Fence: l.held()[0].fence, Shared: l.shared}) }", ""},
	{"a grant does not look at the lease", ofLocks + "table.go", "return !t.halted.Load() && t.leased() }", "return !t.halted.Load() }", "nearly equivalent: the handle is lost when anybody looks at it"},
	{"the lease of a member never ends by itself", ofGroup + "record.go", "g.covered() && term.State(now) == leases.Ended", "g.covered() && term.State(now) == leases.Ended && false", ""},
	{"a handle says that it has the lock for longer", ofLocks + "held.go", "return now.Add(left)", "return now.Add(left + 3*time.Second)", ""},
	{"a life is a member twice", ofLease + "rejoining.go", "j.asked == dmutex.None || r.Highest < j.asked", "j.asked == dmutex.None || r.Highest >= 0", "not in 300 worlds: it needs a join whose answer is lost, and an exclusion before the next load"},
	{"a process that was excluded goes on as the same life", ofGroup + "record.go", "life := l.newLife(g.life)", "life := g.life", "not in 300 worlds: it needs a frame of the former stint that arrives as the first of the new one"},
	{"a life of the store ends before its lease", ofGroup + "store.go", "time.AfterFunc(wait, func", "time.AfterFunc(0*wait, func", ""},
	{"a record that was put back is taken for a new one", ofLease + "lease.go", "cmp.Or(m.contradicted(&r), m.mistaken(&r))", "cmp.Or(m.mistaken(&r))", ""},
	{"a coordinator that has not entered excludes all", "central/contract.go", "!slices.ContainsFunc(m.granted(), theirs)", "(!slices.ContainsFunc(m.granted(), theirs) || true)", ""},
	{"a closing member does not say what it has lent", ofGroup + "record.go", "lent := g.Locks.Loans()", "lent := g.Locks.Loans()[:0]", ""},
	{"a lock that was given back before the view acted is held in it", ofLocks + "share.go", "if !l.table.acting {", "if !l.table.acting && false {", ""},
	{"a loss does not end the context", ofLocks + "held.go", "own.cancel(why)\n\t}\n}\n\n// Fence", "_ = own\n\t}\n}\n\n// Fence", ""},
	{"one who comes back writes its own settings", ofLease + "lease.go", "if m.differs() || e.", "if m.differs() && m.in.View.Epoch == 0 && m.exclusions == 0 || e.", ""},
	{"an exclusion before the last change does not count", ofLease + "lease.go", "r.Unclean > former.Unclean)", "r.Unclean == r.Epoch)", ""},
	{"the death of a member proves that its clients are dead", ofGroup + "record.go", "ok && !cfg.Clients {", "ok {", ""},

	// Sharing.
	{"a writer joins readers", ofLocks + "share.go", "return l.waiters[0].Shares && l.held()", "return l.held()", "equivalent: settle looks again before it grants"},
	{"a hold to share is granted to a writer", ofLocks + "lock.go", "case grants && (l.waiters[0].Shares || !l.shares()):", "case grants:", "not in 300 worlds: it needs a reader that releases while a view changes, and a writer that waits beside it"},
	{"readers pass a writer that waits", ofLocks + "share.go", "&& l.shares() && !l.sharer().Wanted()\n}\n\n// turns", "&& l.shares()\n}\n\n// turns", "it costs a writer time only, and no world has so many readers that it starves"},
	{"a reader is missing in the report", ofLocks + "table.go", "Shared: l.shared})", "Shared: l.shared && false})", ""},

	// Clients and their claims.
	{"a session is longer than the lease of its member", "internal/lend/lend.go", "int64(s.cfg.Left())", "int64(s.cfg.Left() + s.cfg.Length)", ""},
	{"a session counts from the answer", ofSession, "on.term.Confirm(now, on.sentAt, min", "on.term.Confirm(now, max(now, on.sentAt), min", ""},
	{"what is lent goes back whenever the record was asked", ofLocks + "table.go", "return !u.over.After(sent)", "return !u.over.After(sent) || true", ""},
	{"what is lent goes back after a step of the wall clock", ofLocks + "table.go", "over := clock.Latest(t.cfg.Mail.Now(), t.lease.Load().lent)", "over := t.cfg.Mail.Now()", ""},
	{"a lapse gives back what is lent", ofLocks + "table.go", "why.lapse <= lapses && !t.uses[h].lent", "why.lapse <= lapses", ""},
	{"every claim is taken", ofLocks + "waiter.go", "carryover.MayClaim(w.Claims, t.start.Members, l.former()) &&", "(carryover.MayClaim(w.Claims, t.start.Members, l.former()) || true) &&", "one world in some 200 finds it"},
	{"the grant of a claim goes to the next waiter", ofLocks + "waiter.go", "len(l.waiters) == 0 || w.Claims != nil ||", "len(l.waiters) == 0 ||", "not in 300 worlds: it needs a claim that waits for an answer while its member has no lease, and a caller who waits there for the same lock"},
	{"a hold of the former session is said to last as long as the new session", "client/client.go", "h.Extend(c.m.TermOf(h.number))", "h.Extend(c.m.Term())", "not in 300 worlds: it needs a client of which the next member takes over one lock and not another, and somebody who has that soon after"},
	{"a claim counts after its time", ofSession, "case !m.holds(*r) || !m.on().term.Runs():", "case !m.holds(*r) && false:", "equivalent: the client forgets what it held at that time, before it looks at anything else"},
	{"a client keeps what its session has lost", ofSession, "lost := m.holds(r) && !r.left.Runs()", "lost := m.holds(r) && !r.left.Runs() && false", ""},
	{"a client that is back wants what it has released", ofSession, "m.Trying() || !r.released || r.left.Runs() {", "m.Trying() || true {", "one world in some 200 finds it"},
	{"a client comes back to a member that closes, and says nothing", ofSession, "m.elsewhere, m.trial = false, false, false, none", "m.elsewhere, m.trial = false, false, m.leaving && !trial, none", ""},
	{"nobody claims", ofSession, "m.holds(*r) && !r.shares && (m.Trying() || r.left.Runs()) {\n\t\t\tm.send", "m.holds(*r) && !r.shares && (m.Trying() || r.left.Runs()) && false {\n\t\t\tm.send", ""},

	// One lock in one record.
	{"the lease of a record counts from the answer", ofRecord, "m.term.Confirm(now, m.sentAt,", "m.term.Confirm(now, max(now, m.sentAt),", "not in 300 worlds: it needs a late answer, a cut and a waiter that began its wait before"},
	{"a renewal does not begin the wait anew", ofRecord, "if !m.seen || rev != m.rev {", "if !m.seen {", ""},
	{"who waits for a record waits for half of a lease", ofRecord, "m.seenAt + m.drain(m.record.Lease)", "m.seenAt + m.record.Lease/2", ""},
	{"a swap of unknown outcome counts as not done", ofRecord, "m.leaving && !m.mine() && !m.unsure", "m.leaving && !m.mine()", "not in 300 worlds: what stays behind costs the others a lease, which no world bounds but in calm"},
	{"one load tells that a swap was not done", ofRecord, "m.unsure && rev == m.rev\n", "false\n", "likewise"},
	{"one passing error of the prover is no proof", "store/storelock/attempt.go", "\t_, err := storecall.Within(ctx, func(ctx context.Context) (none struct{}, err error) { return none, a.l.prover.Over(ctx, life) })\n", "\t_, err := storecall.Within(ctx, func(ctx context.Context) (none struct{}, err error) { return none, a.l.prover.Over(ctx, life) })\n\tif err != nil && ctx.Err() == nil {\n\t\terr = store.ErrNoProof\n\t}\n", "not in 300 worlds: it needs a holder that cannot renew for a lease, and a waiter whose prover errs each time"},
	{"one passing error of the prover is a proof", "store/storelock/attempt.go", "case err == nil: // but a swap", "case err == nil || !errors.Is(err, store.ErrNoProof): // but a swap", ""},
	{"what mends later ends a record that is held", "store/storelock/attempt.go", "case errors.Is(err, store.ErrUnusable) && (a.Hold == nil || a.giveUpAt != 0):", "case errors.Is(err, store.ErrUnusable):", ""},
	{"a semaphore keeps the permits that come late", "lock/semaphore/semaphore.go", "_ = h.Release()\n", "_ = h\n", ""},

	// The strict mode.
	{"a view needs no promise of those that are down", "internal/membership/consent/consent.go", "case !slices.Contains(m.evicted, u.node) && !m.excused(u, last):", "case !slices.Contains(m.evicted, u.node) && !m.excused(u, last) && false:", ""},

	// NATS.
	{"a message over NATS that is lost is not missed", "client/natsclient/natsclient.go", "case binary.BigEndian.Uint32(data) != c.received:", "case false:", ""},
	{"a link over NATS hears what is for its former number", "transport/natslink/natslink.go", "l.over == nil && l.self == self && deliver != nil", "l.over == nil && deliver != nil", "not in 300 worlds: the stream above tells one life of a peer from the next"},
	{"a connection over NATS ends without a word", "client/natsclient/natsclient.go", "return c.nc.Publish(c.to.String(), nil)\n}\n\n// SetReadDeadline", "return nil\n}\n\n// SetReadDeadline", "not in 300 worlds: the other side notices it by what does not come"},
}

// also are the changes that a fault needs in a second place.
var also = map[string]mutant{
	stuckLink: {file: "transport/natslink/natslink.go", was: "	switch nc, self := l.known, l.self; {\n", is: "	l.nc.IsConnected()\n	switch nc, self := l.known, l.self; {\n"},
}

const stuckLink = "a goroutine that keeps the time asks a stuck link"

// build returns the build with the fault.
func (m *mutant) build(t *testing.T) *build {
	b := newBuild(t)
	for _, m := range []mutant{*m, also[m.fault]} {
		if m.file != "" {
			b.replace(t, filepath.Join(root(t), filepath.FromSlash(m.file)), m.was, m.is)
		}
	}
	return b
}

// Each mutant is a change of the source as it is. With DMUTEX_LONG=1 each runs in worlds until one finds it, 300 at most,
// and a list says after how many: go test -run Mutants -v -timeout 120m. DMUTEX_MUTANT is a part of the faults to try, also of
// those that no world has found.
func TestMutants(t *testing.T) {
	var list []string
	for i, m := range slices.Concat(mutants, stalling) {
		b := m.build(t)
		named := os.Getenv("DMUTEX_MUTANT")
		if os.Getenv("DMUTEX_LONG") == "" || m.no != "" && named == "" || !strings.Contains(m.fault, named) {
			continue
		}
		t.Run(m.fault, func(t *testing.T) {
			find := m.run
			if i >= len(mutants) {
				find = m.stall
			}
			seeds, how := find(t, b)
			list = append(list, fmt.Sprintf("%4d  %s: %s", seeds, m.fault, how))
			t.Log(list[len(list)-1])
			if seeds == 0 {
				t.Errorf("%s: no world has found it", m.fault)
			}
		})
	}
	t.Log("\n" + strings.Join(list, "\n"))
}

// run returns how many seeds were run until one failed, 0 if none did, and the first thing that was wrong.
func (m *mutant) run(t *testing.T, b *build) (seeds int, how string) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.program(t), "-test.run", "^TestWorld$", "-test.v", "-test.failfast", "-test.timeout", "8m")
	cmd.Env = append(os.Environ(), "DMUTEX_LONG=1", "DMUTEX_SEEDS=300", "DMUTEX_TIME=", "DMUTEX_FIRST=")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return 0, "not found"
	}
	return strings.Count(string(out), "=== RUN   TestWorld/"), first(string(out))
}

// first returns the first thing that was wrong.
func first(out string) string {
	if wrong := regexp.MustCompile(`storm.go:\d+: (.*)|panic: (.*)|fatal error: (.*)`).FindString(out); wrong != "" {
		return wrong
	}
	return "it ends: " + out[max(0, len(out)-300):]
}
