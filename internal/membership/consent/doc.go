// Package consent is the machine of the strict mode: the members decide together who goes on. They are a
// fixed list, and none is ever presumed dead: the group waits for it until it returns, or an operator
// vouches that it is dead ([Machine.Evict]). Like every machine of this module it does no I/O, starts no
// goroutine, reads no clock and draws no random number. Package membership has the words, and how a
// view is installed (3).
//
// # How a view is decided
//
// A view is decided with the consent of all members. Its epoch is the number of a round (4.1).
//
//	PREPARE(r)            the proposer asks every member that it has met, and itself
//	PROMISE(r, ...)       the answer: I shall take part in no lower round. It contains
//	                      the view that the life has installed, the last view that it
//	                      knows to be complete, and whether it is leaving
//	REFUSE(p)             the other answer: I have already promised p, which is not lower
//	VIEW(r, M)            the decision
//
// The proposer decides (4.2) when every configured member u
//
//	(i)  has promised r, by its latest known life, and no complete view has gone
//	     on without that life, or
//	(ii) is excused: according to the staying lives, u is outside the last complete
//	     view and outside every later view that any of them has installed, or this
//	     round evicts u, and the proposer knows of no later life of u (4.4).
//
// M is the lives under (i) that are not leaving, but for those in no view that share no version of the
// protocol with the others. A promise stops nothing, so a round that fails does
// no harm: a life acts in its view until it installs a newer one. The lowest member that is there
// begins a round (4.5) when it has met a life that is in no view, leaves, or is in trouble.
//
// # How a view is installed
//
//	REPORT(V, holds)      to all of M: V is installed here, and this is what I hold
//	COMPLETE(V)           to a life outside of V: all have reported to me
//
// A life installs a view V (3.1) when it is a member of V and has promised no later round, and acts in it
// (3.2) when all of V have reported to it. A life without which the others go on stops (3.3).
//
// The table in phase.go has the messages that a life takes and sends in each phase, and how it turns from
// one phase to another.
//
// A leaving life (4.3) first releases everything. It stays until all members of a view without it
// have told it that this view is complete. The round of that view must be higher than all that the
// life promised before it began to leave, because the views of those may have it as a member.
//
// # Why it is right
//
// Two views never have one epoch. Both would need the promise of each member that is not
// excused, and a life promises each number once.
//
// Two views never act at the same time. A life acts in V only after each life of V has frozen all
// older epochs for good. So a life that still acts in an older view U is outside V. Under (i) it would
// be a member of V, or be leaving, and then it holds nothing and asks for nothing. So it was excused:
// a view before V was complete without it. All members of that view had installed it, and the
// argument repeats with it in place of V, until a view that was decided with the promise of the life
// itself.
//
// A holder is never forgotten. It reports its holds in each view that it installs, no member acts
// before it has reported, and it cannot be excused while it holds, because only a life that has
// released everything leaves. Its locks are free when it has ended: another life of its number proves
// that, or the operator's word.
//
// So no lock is granted twice: a grant needs the machines of a view that acts, one view acts at a time,
// and every present hold enters it by a report.
//
// Only lives that stay say who is excused, by the views that they know to be complete. A leaving life,
// a new life or one with a half-installed view may not know of members that have returned since. And
// the promise of a life that has a successor does not count, because the successor has forgotten it.
// The tests remove each of these rules, and show the run in which two members then hold one lock.
//
// # Lives
//
// The lives of one member are ordered by their numbers. A new life takes a number that is probably
// above those of all former ones. If it learns of a higher one, it begins again with a number above
// that ([Older]), and its promises under the lower one do not count. A life that was in a view stops
// when the others go on without it, see doubt.go. All this rests on one assumption: of the processes
// with one number at most one is alive, where a process that was replaced and has been told so counts
// as dead. No life is believed that began more than a day ahead of the clock.
//
// # Fences
//
// A fence is epoch<<22 | counter, so fences rise from view to view. The epoch of a view is at least
// the clock of its proposer, in milliseconds since 2020, and a new life has promised all rounds up to
// its own clock. So fences rise even when everything was stopped and started again, or a process goes
// on that was paused and replaced, if no clock stands behind the epochs that were used before, and
// else if [Config.Fence] says what was used. Exclusion depends on no clock.
//
// A group that changes more than a thousand times a second would overtake the clock. No life takes a
// round or a view that is more than a day ahead of its clock, or of its Config.Fence, so a lie costs
// the group a day of its epochs at most.
package consent
