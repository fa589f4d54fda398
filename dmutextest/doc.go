// Package dmutextest tests lock machines without a network.
//
// [Explore] runs a small group of real machines through every order of events
// that a [Network] allows, and proves what it checks for that group. If
// something fails it prints the shortest run that leads there as a script,
// which [Replay] runs again. [Walk] makes random runs of a group that is too
// large for that. [TestMachine] and [FuzzMachine] hold a machine against the
// contract of [dmutex.Machine].
//
// What is checked at each step of each run, see the errors that begin with
// ErrMutualExclusion.
package dmutextest
