// Package dmutextest tests lock machines without a network. Package
// transport/linktest tests links.
//
// [Explore] runs a small group of real machines through every order of events
// that a [Network] allows, and proves for that group what the errors that
// begin with [ErrMutualExclusion] say. If something fails it prints the
// shortest run that leads there as a script. [Refute] is its negative: weaken a
// rule, and the check must fail. [Walk] makes random runs, with the same
// checks, of a group that is too large to explore. [Simulate] measures.
//
// [RunScript] runs a script, which is a conversation as text, and [TestScript]
// holds it against a golden file.
//
// [TestMachine] and [FuzzMachine] hold a machine, ours or yours, against the
// contract of [dmutex.Machine].
package dmutextest
