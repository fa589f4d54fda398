// Package quorum builds, checks and measures coteries: families of groups any of
// which may act for all.
//
// Some sites (nodes, replicas, voters) must decide one thing at a time: which node holds
// the lock, which value is written. Asking all of them works until one crashes. Asking a
// group is enough if any two groups that may decide share a member, which will not agree to
// both. Such a group is a quorum, and a coterie is a set of quorums with three laws:
//
//   - non-emptiness: there is a quorum, and every quorum has a site;
//   - intersection: any two quorums share a site, so two holders are impossible;
//   - minimality: no quorum contains another. That costs nothing, because a group that
//     holds a superset also holds the quorum in it, and it makes the family unique.
//
// A [Coterie] obeys them by construction. [New] takes written-out quorums and
// names the two that offend; [Check] lists all offenses; [Minimize] drops what is
// superfluous. The known constructions are here by name:
//
//	Majority, Weighted        more than half of the sites, or of their votes
//	Grid                      a row and a column
//	Plane                     lines of a projective plane: the smallest equals
//	Tree, Hierarchical        paths in a tree; majorities of majorities
//	Wheel, Wall               a hub and one of the rim; a row and one of each below
//	Compose                   a coterie whose sites are coteries
//
// They differ in what they cost and what they survive:
//
//	size          how many must be asked
//	load          how busy the busiest site is; one over it is the capacity
//	resilience    how many crashes, whichever they are, leave a quorum
//	availability  how likely a quorum is up if each site is up with probability p
//	dual          the minimal transversals: what must be down to stop every node
//	gap           where another coterie is available and this one is not
//
// [Constructions] lists the builders that need only sites, by name; the command
// dmutex quorum compare measures them side by side. For Maekawa's algorithm
// [Coterie.Assign] gives each site a quorum of its own, and [Assignment.Report]
// says which of Maekawa's four conditions they fulfill.
//
// A coterie of sixty sites can have more quorums than can be written down. It is then kept
// as a small tree of gates, and all methods but those that list quorums work on that. The
// same call always gives the same answer: even random sampling starts from a fixed seed.
//
// # Errors
//
// Bad input is refused with an error that says what to change. Each error is one of the Err
// sentinels for errors.Is; where quorums break a law it is a [*Violation] with the two
// quorums in it. Every builder refuses no sites (ErrSize), a site given twice
// (ErrDuplicate), one that is not a number (ErrValue), and more than 8192 (ErrTooLarge).
package quorum
