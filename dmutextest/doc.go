// Package dmutextest tests lock machines without a network. Package
// transport/linktest tests links.
//
// [Explore] runs a small group of real machines through every order of events
// that a [Network] allows. It proves for that group that none of the errors from
// [ErrMutualExclusion] on occurs, or returns the shortest run to one as a script.
// [Refute] is its opposite: a test weakens a rule, and the exploration must fail.
// [Walk] makes random runs, with the same checks, of a group that is too large to
// explore. [Simulate] measures.
//
// [RunScript] runs a script, which is a conversation as text. [TestScript]
// compares it with a golden file, and [TraceScript] makes
// traces of it; [SaveTrace] writes them for "dmutex trace draw".
//
// [TestMachine] and [FuzzMachine] check that a machine keeps the contract of
// [dmutex.Machine].
package dmutextest
