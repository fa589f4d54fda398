// Package lease is the lease machine: one record in a store says who is a member, and each member has a
// lease. A [Machine] is one life's part in the views of such a group. Like every machine of this module
// it does no I/O, starts no goroutine, reads no clock and draws no random number. Package membership has
// the words, and how a view is installed (3). The phases promise this:
//
//	         may hold, and be granted             changes the record
//	Outside  nothing: it joins, or was excluded   to join
//	Frozen   what it reports; nothing is granted  yes
//	Acting   locks that no former member may      yes
//	         hold (5a)
//	Left     nothing, but see LeaveHolding        no
//	Stopped  nothing: the record is bad, or has   no
//	         other settings than it, see Err
//
// The table in phase.go has the messages that it takes and sends in each phase, and how it turns from one
// phase to another.
//
// What a life holds it holds while the term of its lease runs (5.3), which is no phase. The record that it
// has read names it if it is Frozen or Acting, and may if it is Stopped: then the others exclude it. The
// process of an excluded life goes on as another life (5.5), and changes nothing before, see Rejoin.
//
// # How a view is decided
//
// A record is a view: its epoch and its members. Each change (5.1) replaces it by one of a
// higher epoch, with a compare-and-swap on what was read last. After a swap of unknown outcome
// the life reads the record again.
//
//	join      the life adds itself, under a number that was never given before, and excludes a member
//	          with its address: the process there has ended
//	leave     the life removes itself, after it has released everything
//	exclude   a member removes others, whose processes seem to be gone
//	replace   a member asks for a view of the same members, in trouble
//
// Any member may exclude any other at any time: a suspicion decides when, and never whether it
// is safe. The record has the epoch of the last exclusion (unclean).
//
// # How a view is installed
//
// A member installs the view of a newer record by rule 3. It sends VIEW to all members first, and REPORT
// to those that have spoken of the view. It acts when all have reported, its own lease is valid, and they
// know which locks each excluded life may hold whose lease may run.
//
// # Leases
//
// The lease of a life (5.2) ends, by its own clock, L after it asked for the last operation
// that succeeded and showed it among the members. From then on the life holds nothing (5.3):
// what is lost is not reported, and no later renewal brings it back.
//
// The locks that an excluded life may hold wait (5.4) until D = L(1+rho)/(1-rho) has passed since a
// life first knew a record that is not older than the last exclusion (see package leases). A life
// that has waited tells the others: CLEARED. Then they need not wait, as the end of those leases is a
// fact of real time. Each swap also writes the last exclusion that its life knows to be cleared, but
// not its own, so a life that joins after all others have left acts at once. The reports tell which
// locks wait (see memory.go). If they cannot, the view does not act until then. A new record counts as
// an exclusion of everybody: the members of a record that was lost before it may not know that yet.
//
// # Why it is right
//
// Two views never have one epoch: both would be changes of one record. Nobody acts in a view
// before all of its members have frozen all older epochs for good. So a life that still acts in
// an older view has left, and has released everything, or was excluded.
//
// Excluded lives: take the last operation that showed a life among the members. It was asked for
// before it took effect, and that was before the swap that excluded the life. So the lease ends
// less than L/(1-rho) of true time after that swap. A life that requests a lock in a later view
// knows that the excluded life cannot have it (5a), or has waited, or was told, by a message or the
// record, of a life that has waited: for D, by a clock, after that swap. That is at least D/(1+rho)
// of true time, which is L/(1-rho), however long messages and operations take.
//
// A life that brings another L to a record without members does so when the last exclusion is
// cleared. So no lease that runs is longer than that in the record, and a life waits for its own or
// that in the record, whichever is longer. What is cleared holds for any L.
//
// A holder reports its holds in each view that it installs, and no member acts before it has reported. So
// each present hold enters a view by a report. Fences rise with the epochs.
//
// # The record
//
// A store that knows that it has begun anew says so (5.6). Then a member goes on as another life, as after an exclusion, and
// the first to join makes a new record.
//
// A life that finds the record gone without such a word, or with a lower epoch than before, or contradicting what it
// has read, stops: others may be using epochs or numbers for the second time. The epoch of each record is at
// least the clock of its writer. So fences rise also from a lost record to a new one, and to an older
// one that was put back, with a member that joins, if the clocks of the later writers do not stand
// behind those of the earlier ones. Exclusion depends on no clock's time, only on its rate.
//
// # Settings
//
// All members have the same lease and settings, and versions of the protocol in common (5.7). A life
// with others is Stopped, if the record has members. If it has none, the life writes its own.
//
// # How often it changes
//
// A member that was not there for a share of a lease is excluded, one that has not reported in a whole
// lease, and at once one that is dead by all evidence. Its silence counts from the first answer of the
// store to what was asked after the silence had begun, and anew when two operations in a row fail:
// where the link and the store are one server, a life that is back after an outage leaves the others
// time to be back, too. A life that misses several members waits longer, and one that has never acted
// since it joined longer still. So if two cannot reach each other, the one that can reach fewer goes,
// and one that has come back goes again. A life that is excluded again and again pauses longer each
// time before it joins, so it brings about at most 40 views in ten minutes.
package lease
