package demo

import (
	"time"

	"github.com/dmutex/dmutex"
)

// A group and its processes talk in lines of JSON: orders to a process's
// standard input, reports from its standard output. A run goes
//
//	task      ->   what to do
//	          <-   address     where the link listens
//	open      ->   the addresses of all
//	          <-   ready       all have met
//	begin     ->
//	          <-   progress    again and again
//	          <-   done        with the records of all deposits
//	count     ->               again, until no message is in flight
//	          <-   counts
//	leave     ->               the process closes its node and exits
//
// Tellers that are to be killed have no last deposit: they work until they leave, and
// report their views. Tellers with a lease find the addresses in the record of the members.
// Before such a teller is killed it takes no more locks, except that it may hold that of
// the account.
//
//	          <-   view        again and again
//	rest      ->
//	          <-   resting
//
// Philosophers have more words for each meal, so that each has one fork before any wants
// the second. They report progress when they have eaten.
//
//	sit       ->               all have eaten; after the last meal the answer is done
//	          <-   seated      with the left fork
//	reach     ->               for the right one
//	          <-   cycle      a deadlock that ended a wait of this process
//
// Until it is told to leave, a process keeps answering the messages of the others. When
// its standard input ends it exits, so a demo that dies leaves no processes behind.
type order struct {
	Word  string                   `json:"word"`
	Task  *task                    `json:"task,omitempty"`
	Peers map[dmutex.NodeID]string `json:"peers,omitempty"`
	Hold  bool                     `json:"hold,omitempty"` // the lock of the account, while it rests
}

type report struct {
	Word     string   `json:"word"`
	Address  string   `json:"address,omitempty"`
	Made     int      `json:"made,omitempty"` // deposits or meals so far
	Records  []record `json:"records,omitempty"`
	Counts   *counts  `json:"counts,omitempty"`
	Cycle    cycle    `json:"cycle,omitempty"`
	Overlaps int      `json:"overlaps,omitempty"` // forks that were taken while in another hand
	View     *view    `json:"view,omitempty"`

	// Of a teller with a lease.
	Self  dmutex.NodeID   `json:"self,omitempty"`  // the number of its node
	Turns map[string]turn `json:"turns,omitempty"` // the locks granted to it since its last report
}

// The words of orders and of reports.
const (
	wordTask     = "task"
	wordAddress  = "address"
	wordOpen     = "open"
	wordReady    = "ready"
	wordBegin    = "begin"
	wordProgress = "progress"
	wordDone     = "done"
	wordCount    = "count"
	wordCounts   = "counts"
	wordLeave    = "leave"
	wordView     = "view"
	wordRest     = "rest"
	wordResting  = "resting"

	wordSit    = "sit"
	wordSeated = "seated"
	wordReach  = "reach"
	wordCycle  = "cycle"
)

// A task is what a process has to do.
type task struct {
	Trade     string        `json:"trade"` // what the process is: the name of its command
	Self      dmutex.NodeID `json:"self"`
	Nodes     int           `json:"nodes"` // numbered from 1
	Algorithm string        `json:"algorithm"`
	Link      string        `json:"link"`
	Listen    string        `json:"listen,omitempty"` // over TCP
	NatsURL   string        `json:"nats_url,omitempty"`
	Prefix    string        `json:"prefix"`          // of NATS subjects; each run has its own
	Dir       string        `json:"dir"`             // where the account is
	Trace     string        `json:"trace,omitempty"` // the directory for traces, if any are recorded
	Think     time.Duration `json:"think"`

	// Of a teller.
	Deposits int  `json:"deposits,omitempty"` // 0 for as many as it can until it is told to leave
	Views    bool `json:"views,omitempty"`    // report them

	// Lease, if not 0, is that of tellers who come and go. The record of the members is a
	// file in Dir. Their nodes ignore Self and Nodes. If Remote, the record proves
	// no process dead, like one on another machine.
	Lease  time.Duration `json:"lease,omitempty"`
	Remote bool          `json:"remote,omitempty"`

	// Of a philosopher.
	Meals  int           `json:"meals,omitempty"`
	Detect time.Duration `json:"detect,omitempty"` // how long to wait before looking for a cycle; 0 never looks
}

// A record is one deposit. Its times are nanoseconds of the wall clock, which
// the processes of one machine share.
type record struct {
	Fence   uint64 `json:"fence,omitempty"`
	Called  int64  `json:"called"`  // Acquire was called,
	Granted int64  `json:"granted"` // it returned,
	Left    int64  `json:"left"`    // and Release was called
}

// A turn is the last grant of a lock since the last report, and the longest wait for a
// grant since then.
type turn struct {
	Granted int64         `json:"granted"` // as in a record
	Wait    time.Duration `json:"wait"`
	Home    dmutex.NodeID `json:"home"`
}

// A view is a view that acts at a node, and how long nothing was granted there before.
type view struct {
	Epoch uint64        `json:"epoch"`
	Took  time.Duration `json:"took"`
}

// counts are the messages of the algorithm at one node, by kind, and the locks
// that the node holds or waits for.
type counts struct {
	Sent     [dmutex.Kinds]uint64 `json:"sent"`
	Received [dmutex.Kinds]uint64 `json:"received"`
	Busy     int                  `json:"busy"`
}
