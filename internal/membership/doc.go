// Package membership is what the two view machines share. A view machine lets the processes of a group
// stop, restart, leave and return, while the algorithms of the locks stay the textbook's. In the strict
// mode the members decide together who goes on: package consent. In the lease mode a record in a store
// does: package lease.
//
// # Words
//
// A life is one run of a member's process. A view is an epoch number and the lives that are its
// members. Each lock has one machine a view, born from [dmutex.Start] with the holder that is
// carried over; within a view the algorithms run as in their papers, where no process fails.
//
// The code names its rules by number: 3 is how a view is installed, in both modes, 4 how it is decided
// by consent, and 5 by a record.
//
// # How a view is installed
//
// A life installs a view V (3.1) when it is a member of V and knows of no later one. It freezes all older
// epochs: it grants and answers nothing in them. It keeps the locks that it holds, and reports them to all
// members of V. It acts in V (3.2) when all of them have reported to it, and it has not installed a newer
// view. So two views never act at the same time, and a present hold enters each view by a report.
//
// # Fences
//
// A fence is epoch<<22 | counter, so fences rise from view to view: see package epochs.
package membership
